"""The errors that users see: what happened, where, and what to try."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Problem:
    """One mistake in a request; `where` is its place, such as a key or flag."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


class TrainyardError(Exception):
    """An error that a user can act on; each subclass has its own exit code."""

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
        """Return the lines for the user: error, place, problems, hint."""
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
    """The request is wrong: a file or a flag; `problems` has every mistake."""


class PrerequisiteError(TrainyardError, exit_code=3):
    """This machine or account lacks something."""


class LockedOutError(PrerequisiteError):
    """A cluster's head runs, but rejects this machine."""


class NotReadyError(TrainyardError, exit_code=4):
    """Something was not ready in time; `where` says what was last observed."""


class SmokeError(TrainyardError, exit_code=5):
    """A smoke test failed; nothing was dispatched."""


class LintError(TrainyardError, exit_code=5):
    """An image failed `image.lint`, and nothing was pushed."""


class DoctorError(TrainyardError, exit_code=5):
    """`cluster.doctor` found, and printed, what is broken or will break."""


class OutsideError(TrainyardError, exit_code=6):
    """An outside system rejected a request, or failed."""


class LeftoverError(TrainyardError, exit_code=7):
    """Something is left after `cluster.down`."""


class InterruptedRunError(TrainyardError, exit_code=130):
    """The user interrupted a command with Ctrl-C."""


def reason_of(error: Exception) -> str:
    """Return an error's cause, without place and hint, to be quoted."""
    if isinstance(error, TrainyardError):
        return error.what
    return f"{type(error).__name__}: {error}"


def in_a_line(error: TrainyardError) -> str:
    """Return the error on one line: with its problems, or else its place."""
    if error.problems:
        return "; ".join([error.what, *map(str, error.problems)])
    if error.where:
        return f"{error.what}: {error.where}"
    return error.what
