"""Errors, in three short parts: what happened, where, and the hint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a request: its place, and its message."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


class TrainyardError(Exception):
    """An error a user can act on; each kind has its own exit code."""

    exit_code: ClassVar[int] = 70

    def __init_subclass__(cls, *, exit_code: int | None = None) -> None:
        cls.exit_code = exit_code or cls.exit_code

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        problems: tuple[Problem, ...] = (),
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint
        self.problems = problems

    def lines(self) -> list[str]:
        """Return the message as a user reads it: error, place, one bullet a problem, hint."""
        lines = [self.what]
        if self.where:
            lines.append(f"  at {self.where}")
        lines += [f"  - {problem}" for problem in self.problems]
        if self.hint:
            lines.append(f"  -> {self.hint}")
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())


class JobFailedError(TrainyardError, exit_code=1):
    """The job ran, and failed or was stopped."""


class RequestError(TrainyardError, exit_code=2):
    """The request is wrong: a file, a flag. Carries every problem at once."""


class PrerequisiteError(TrainyardError, exit_code=3):
    """This machine or account lacks something."""


class LockedOutError(PrerequisiteError):
    """The head of a cluster runs, and does not let this machine in."""


class NotReadyError(TrainyardError, exit_code=4):
    """Something did not become ready in time; says what was last seen."""


class SmokeError(TrainyardError, exit_code=5):
    """A smoke test failed; nothing was dispatched."""


class LintError(TrainyardError, exit_code=5):
    """An image is not fit to be run; nothing was pushed. Carries every problem at once."""


class DoctorError(TrainyardError, exit_code=5):
    """Something is wrong with a cluster, or will be; the table says what."""


class OutsideError(TrainyardError, exit_code=6):
    """An outside system refused or broke."""


class LeftoverError(TrainyardError, exit_code=7):
    """Something is left after `cluster.down`."""


class InterruptedRunError(TrainyardError, exit_code=130):
    """The user interrupted a waiting command."""


def reason_of(error: Exception) -> str:
    """Return what went wrong, for a message about what could not be done because of it."""
    if isinstance(error, TrainyardError):
        return error.what
    return f"{type(error).__name__}: {error}"


def in_a_line(error: TrainyardError) -> str:
    """Return what is wrong and where, for a table of several such things."""
    if error.problems:
        return "; ".join([error.what, *map(str, error.problems)])
    if error.where:
        return f"{error.what}: {error.where}"
    return error.what
