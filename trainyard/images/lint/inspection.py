"""Everything that the checks look at, and what they find: one finding per check."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from trainyard.errors import LintError, Problem
from trainyard.images.lint.probe import Probed
from trainyard.seams.docker.images import ImageFacts
from trainyard.spec.image import ImageFile, LintSection


@dataclass(frozen=True)
class Inspection:
    """One image: what the engine knows, what it printed about itself, and what its image.yaml expects."""

    reference: str
    file: ImageFile | None
    ray_version: str
    image: ImageFacts
    history: tuple[str, ...]
    probed: Probed

    @property
    def lint(self) -> LintSection:
        return self.file.lint if self.file else LintSection()

    @property
    def user(self) -> str:
        """Return what the image runs as, in words."""
        return f"{self.probed.text('user') or self.image.user or '?'} (uid {self.probed.text('uid') or '?'})"


@dataclass(frozen=True)
class Finding:
    """What one check found. `skipped`: it could not be tried, because of what another one found."""

    check: str
    ok: bool
    detail: str
    hint: str = ""
    skipped: bool = False


@dataclass(frozen=True)
class LintReport:
    """What all checks found. `cached`: nothing was run, since the same image was asked the same before."""

    reference: str
    findings: tuple[Finding, ...]
    seconds: float
    cached: bool = False

    @property
    def ok(self) -> bool:
        return not self.failed

    @property
    def failed(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if not finding.ok)

    def document(self) -> dict[str, Any]:
        """Return the report as `image.lint --json` prints it."""
        return {
            "reference": self.reference,
            "ok": self.ok,
            "seconds": round(self.seconds, 3),
            "cached": self.cached,
            "checks": [asdict(finding) for finding in self.findings],
        }

    @property
    def error(self) -> LintError | None:
        """Return what is wrong, None if every check is ok."""
        if self.ok:
            return None
        number = f"{len(self.failed)} of {len(self.findings)} checks failed"
        problems = tuple(Problem(each.check, f"{each.detail}\n    -> {each.hint}") for each in self.failed)
        return LintError(f"the image is not fit to be run: {number}", where=self.reference, problems=problems)


def ok(check: str, detail: str) -> Finding:
    return Finding(check, True, detail)


def failed(check: str, detail: str, hint: str) -> Finding:
    return Finding(check, False, detail, hint)
