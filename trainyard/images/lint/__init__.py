"""Prove that an image can be run by a cluster: it is run here, once, and asked about itself."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainyard.errors import PrerequisiteError
from trainyard.images.lint import cache, checks
from trainyard.images.lint.inspection import Inspection
from trainyard.images.lint.probe import ask, questions
from trainyard.images.lint.report import Finding, LintReport
from trainyard.images.types import Image
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker.engine import Engine
from trainyard.spec.image import LintSection

__all__ = ["Finding", "LintReport", "check"]


def check(
    image: Image | None,
    reference: str,
    engine: Engine,
    *,
    ray_version: str,
    on_progress: Callable[[str], None] = lambda text: None,
) -> LintReport:
    """Look at an image of the engine in every way; `image` has what is expected of it beyond what all need.

    Raises PrerequisiteError when the engine does not have it.
    """
    began = time.monotonic()
    named = checks.reference(reference)
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
    file = image.file if image else None
    asked = questions(file.lint if file else LintSection())
    kept = cache.find(engine.environ, facts.id, asked)
    if kept is None:
        on_progress("asking the image about itself")
    probed = kept or ask(engine, facts, asked)
    history = docker_images.history(engine, facts.id)
    found = checks.judge(Inspection(reference, file, ray_version, facts, history, probed))
    report = LintReport(reference, (named, *found), time.monotonic() - began, kept is not None)
    if report.ok:
        # Only what is fine is kept: a busy machine may have been the reason for what is not.
        cache.keep(engine.environ, facts.id, asked, probed)
    return report
