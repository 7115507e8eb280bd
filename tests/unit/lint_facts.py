"""An image that nothing is wrong with, as the lint sees it, and images that differ from it in one way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainyard.images.lint import judge
from trainyard.images.lint.probe import Probed, questions
from trainyard.images.lint.seen import Seen
from trainyard.seams.docker.images import ImageFacts, Layer
from trainyard.spec.image import ImageFile, LintSection

SAID = {
    "begin": "",
    "uid": "1000",
    "user": "ray",
    "bash": "/bin/bash",
    "wget": "/usr/bin/wget",
    "writable:/tmp": "yes",
    "ray.program": "/opt/ray/bin/ray",
    "ray.first_line": "#!/opt/ray/bin/python3",
    "ray.ended": "0 ray, version 2.60.0",
    "ray.version": "2.60.0",
    "ray.python": "/opt/ray",
    "python.program": "/opt/ray/bin/python",
    "python.prefix": "/opt/ray",
    "python.ended": "0 ",
    "python.ray": "2.60.0",
    "end": "",
}
HEALTHY = Seen(
    reference="trainyard/ray-cpu:0123456789ab",
    file=ImageFile(base="python:3.12-slim"),
    ray_version="2.60.0",
    image=ImageFacts(
        id="sha256:1",
        tags=(),
        digests=(),
        labels={},
        user="ray",
        entrypoint=None,
        command=("/bin/bash",),
        env={"PATH": "/opt/ray/bin:/usr/bin"},
        size=600 * 1024**2,
        layers=("sha256:a", "sha256:b"),
        platform="linux/amd64",
        created="",
    ),
    history=(Layer("/bin/sh -c #(nop) ADD file:1 in / ", 200 * 1024**2), Layer("RUN pip install ray", 400 * 1024**2)),
    probed=Probed(True, True, "", SAID, {}),
)


def says(seen: Seen, **facts: str | None) -> Seen:
    """Return an image that says other things; None: nothing. `ray_version` stands for `ray.version`."""
    named = {key.replace("_", ".", 1): value for key, value in facts.items()}
    said = {key: value for key, value in {**seen.probed.said, **named}.items() if value is not None}
    return replace(seen, probed=replace(seen.probed, said=said))


def is_(seen: Seen, **facts: Any) -> Seen:
    """Return an image of which the engine knows other things."""
    return replace(seen, image=replace(seen.image, **facts))


def asks(seen: Seen, user: str = "any", answers: dict[str, str] | None = None, **lint: Any) -> Seen:
    """Return an image whose image.yaml asks more; every answer is good, but those given here ("" for none)."""
    section = LintSection(**lint)
    asked = dict.fromkeys(questions(section), "0 ") | (answers or {})
    given = {question: answer for question, answer in asked.items() if answer}
    file = ImageFile.model_validate({"base": "b", "user": user, "lint": section})
    return replace(seen, file=file, probed=replace(seen.probed, answers=given))


def failures(seen: Seen) -> list[str]:
    """Return what is wrong with an image, as people read it."""
    return [f"{one.check}: {one.detail} -> {one.hint}" for one in judge(seen) if not one.ok]
