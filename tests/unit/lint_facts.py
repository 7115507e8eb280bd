"""A faultless image, as the lint sees it, and images that differ from it in one way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainyard.images.lint.checks import judge
from trainyard.images.lint.probe import Inspection, Probed, questions_of
from trainyard.seams.docker.images import ImageFacts, MadeBy
from trainyard.spec.image import ImageFile, LintSection
from trainyard.versions import RAY

FACTS = {
    "begin": "",
    "uid": "1000",
    "user": "ray",
    "bash": "/bin/bash",
    "wget": "/usr/bin/wget",
    "writable:/tmp": "yes",
    "ray.program": "/opt/ray/bin/ray",
    "ray.first_line": "#!/opt/ray/bin/python3",
    "ray.ended": f"0 ray, version {RAY}",
    "ray.version": RAY,
    "ray.python": "/opt/ray",
    "python.program": "/opt/ray/bin/python",
    "python.prefix": "/opt/ray",
    "python.ended": "0 ",
    "python.ray": RAY,
    "end": "",
}
HEALTHY = Inspection(
    file=ImageFile(base="python:3.12-slim"),
    image=ImageFacts(
        id="sha256:1",
        tags=(),
        digests=(),
        labels={},
        user="ray",
        entrypoint=None,
        env={"PATH": "/opt/ray/bin:/usr/bin"},
        size=600 * 1024**2,
        layers=("sha256:a", "sha256:b"),
        platform="linux/amd64",
        created="",
    ),
    history=(
        MadeBy("/bin/sh -c #(nop) ADD file:1 in / ", 100 * 1024**2),
        MadeBy("RUN pip install ray", 500 * 1024**2),
    ),
    probed=Probed(FACTS),
)


def says(inspection: Inspection, **facts: str | None) -> Inspection:
    """Return an image with other facts (None removes one; `ray_version` means `ray.version`)."""
    named = {key.replace("_", ".", 1): value for key, value in facts.items()}
    printed = {
        key: value
        for key, value in {**inspection.probed.facts, **named}.items()
        if value is not None
    }
    return replace(inspection, probed=Probed(printed))


def is_(inspection: Inspection, **facts: Any) -> Inspection:
    """Return an image of which the engine knows other things."""
    return replace(inspection, image=replace(inspection.image, **facts))


def asks(
    inspection: Inspection, user: str = "any", answers: dict[str, str] | None = None, **lint: Any
) -> Inspection:
    """Return an image whose image.yaml asks more; answers are good but for `answers` ("": none)."""
    section = LintSection(**lint)
    every = dict.fromkeys(questions_of(section), "0 ") | (answers or {})
    given = {question: answer for question, answer in every.items() if answer}
    file = ImageFile.model_validate({"base": "b", "user": user, "lint": section})
    return replace(inspection, file=file, probed=Probed({**inspection.probed.facts, **given}))


def failures(inspection: Inspection) -> list[str]:
    """Return what is wrong with an image, as people read it."""
    return [f"{finding.check}: {finding.detail}" for finding in judge(inspection) if not finding.ok]
