"""Check that a cluster can run an image: probe it, and judge the answers."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainyard import paths
from trainyard.errors import LintError, PrerequisiteError, Problem
from trainyard.images.catalog import Image
from trainyard.images.lint import checks
from trainyard.images.lint.checks import Finding
from trainyard.images.lint.probe import Inspection, Probed, ask, questions_of, script
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker.engine import Engine
from trainyard.spec.image import ImageFile, LintSection

# The expectations of an image without an image.yaml. An unknown version of KubeRay may run it, so
# wget is not required.
OTHERS = ImageFile(base="scratch", lint=LintSection(wget=False))


@dataclass(frozen=True)
class LintReport:
    """All findings; `cached` if the answers are from an earlier run."""

    reference: str
    findings: tuple[Finding, ...]
    seconds: float
    cached: bool = False

    @property
    def failed(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if not finding.ok)

    def document(self) -> dict[str, Any]:
        """Return what `image.lint --json` prints."""
        return {
            "reference": self.reference,
            "ok": not self.failed,
            "seconds": round(self.seconds, 3),
            "cached": self.cached,
            "checks": [asdict(finding) for finding in self.findings],
        }

    @property
    def error(self) -> LintError | None:
        """Return the error with all failed checks; None if there are none."""
        if not self.failed:
            return None
        number = f"{len(self.failed)} of {len(self.findings)} checks failed"
        problems = tuple(
            Problem(each.check, f"{each.detail}\n    -> {each.hint}") for each in self.failed
        )
        return LintError(
            f"the image is not fit to run: {number}", where=self.reference, problems=problems
        )


def check(
    image: Image | None,
    reference: str,
    engine: Engine,
    *,
    on_progress: Callable[[str], None] = lambda text: None,
) -> LintReport:
    """Run all checks of an image on the engine.

    `image` may add expectations. Raises PrerequisiteError if the engine lacks
    the image.
    """
    began = time.monotonic()
    named = checks.reference(reference)
    if not named.ok:
        # No engine accepts such a name, so the other checks are impossible.
        return LintReport(reference, (named,), time.monotonic() - began)

    facts = docker_images.inspect(engine, reference)
    if facts is None:
        raise PrerequisiteError(
            f"no such image: {reference}",
            where=f"Docker engine {engine.host}",
            hint=f"Build it: trainyard image.build {image.name}"
            if image
            else f"Fetch it: docker pull {reference}",
        )

    file = image.file if image else OTHERS
    questions = questions_of(file.lint)
    # An image id names fixed content, so answers to the same questions can be cached.
    key = hashlib.sha256(json.dumps([facts.id, script(), *questions]).encode()).hexdigest()[:32]
    cache = paths.cache_home(engine.environ) / "lint" / f"{key}.json"
    kept = read_cache(cache)
    if kept is None:
        on_progress("probing the image")

    probed = kept or ask(engine, facts, questions)
    history = docker_images.history(engine, facts.id)
    findings = checks.judge(Inspection(file, facts, history, probed))
    report = LintReport(reference, (named, *findings), time.monotonic() - began, kept is not None)
    if not report.failed:
        # Failures are not cached, because a busy machine may have caused them.
        write_cache(cache, probed)

    return report


def read_cache(path: Path) -> Probed | None:
    try:
        return Probed(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def write_cache(path: Path, probed: Probed) -> None:
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(probed)))
