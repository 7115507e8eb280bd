"""Prove that an image can be run by a cluster: it is run here, once, and asked about itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from trainyard.errors import PrerequisiteError
from trainyard.images.lint import content_checks, ray_checks, start_checks
from trainyard.images.lint.known import Known, earlier
from trainyard.images.lint.probe import Probed, ask, questions
from trainyard.images.lint.report import Finding, LintReport
from trainyard.images.lint.seen import Seen
from trainyard.images.types import Image
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker.engine import Engine
from trainyard.seams.docker.images import ImageFacts
from trainyard.spec.image import LintSection

__all__ = ["CHECKS", "Finding", "LintReport", "check"]

# In this order they are printed: what comes first explains what follows. None: nobody asked.
CHECKS: tuple[tuple[str, Callable[[Seen], Finding | None]], ...] = (
    ("platform", start_checks.platform),
    ("entrypoint", start_checks.entrypoint),
    ("bash", start_checks.bash),
    ("user", start_checks.user),
    ("writable", start_checks.writable),
    ("wget", start_checks.wget),
    ("interpreter", ray_checks.interpreter),
    ("ray", ray_checks.ray),
    ("python", ray_checks.python),
    ("import", ray_checks.imports_ray),
    ("imports", ray_checks.imports),
    ("entry-point", ray_checks.entry_point),
    ("runs", content_checks.runs),
    ("files", content_checks.must_have),
    ("programs", content_checks.programs),
    ("search-paths", content_checks.search_paths),
    ("environ", content_checks.environ),
    ("size", content_checks.size),
    ("history", content_checks.history),
)
# What needs no container to be looked at.
_WITHOUT_SHELL = ("search-paths", "environ", "size", "history")


def check(
    image: Image | None,
    reference: str,
    engine: Engine,
    *,
    ray_version: str,
    on_progress: Callable[[str], None] | None = None,
) -> LintReport:
    """Look at an image of the engine in every way; `image` tells what is expected of it beyond what all need.

    Raises PrerequisiteError when the engine does not have it.
    """
    began = time.monotonic()
    named = start_checks.reference(reference)
    if not named.ok:
        # No engine takes such a name: there is nothing to ask.
        return LintReport(reference, (named,), time.monotonic() - began)
    facts = docker_images.inspect(engine, reference)
    if facts is None:
        raise PrerequisiteError(
            f"no such image: {reference}",
            where=f"Docker engine {engine.host}",
            hint=f"Build it: invoke image.build {image.name}" if image else f"Fetch it: docker pull {reference}",
        )
    before = earlier(engine.environ)
    asked = questions(image.file.lint if image else LintSection())
    probed, was_probed = _probed(facts, asked, engine, before, on_progress)
    history = docker_images.history(engine, facts.id)
    file = image.file if image else None
    found = (named, *judge(Seen(reference, file, ray_version, facts, history, probed)))
    report = LintReport(reference, found, time.monotonic() - began, was_probed)
    if report.ok:
        # Only what is fine is remembered: a busy machine may have been the reason for what is not.
        before.keep_probed(facts.id, asked, probed)
    return report


def judge(seen: Seen) -> tuple[Finding, ...]:
    """Return the findings of all checks that apply."""
    found = (_judge_one(name, looks, seen) for name, looks in CHECKS)
    return tuple(finding for finding in found if finding is not None)


def _judge_one(name: str, looks: Callable[[Seen], Finding | None], seen: Seen) -> Finding | None:
    cannot_run = "exec format error" in seen.probed.refusal
    if not seen.probed.began and name not in _WITHOUT_SHELL and (cannot_run or name != "bash") and name != "platform":
        return start_checks.no_shell(name)
    return looks(seen)


def _probed(
    facts: ImageFacts,
    asked: Sequence[str],
    engine: Engine,
    before: Known,
    on_progress: Callable[[str], None] | None,
) -> tuple[Probed, bool]:
    probed = before.probed(facts.id, asked)
    if probed is not None:
        return probed, True
    if on_progress:
        on_progress("asking the image about itself")
    return ask(engine, facts, asked), False
