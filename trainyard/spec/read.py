"""A file of the user -> its text, refused when it cannot be one of ours: too large, not text, not a file."""

from __future__ import annotations

import stat
from os import stat_result
from pathlib import Path

from trainyard.errors import Problem, RequestError

LARGEST = 1024 * 1024
MOST_SHOWN = 100


def read_text(path: Path, *, kind: str) -> str:
    """Return the text of a cluster or job file (`kind` says which). Raises RequestError if there is none to be had."""
    origin = shown(path)
    try:
        _check(path.stat(), origin, kind)
        with path.open("rb") as stream:
            content = stream.read(LARGEST + 1)
    except FileNotFoundError as error:
        raise _refused(kind, origin, "does not exist") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _refused(kind, origin, f"cannot be read: {reason}") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        wrong = content[error.start]
        raise _refused(kind, f"{origin}:{line}", f"is not UTF-8 text: it contains the byte 0x{wrong:02X}") from error


def shown(path: Path) -> str:
    """Return a path as a person would write it here."""
    working = Path.cwd()
    return str(path.relative_to(working)) if path.is_relative_to(working) and path != working else str(path)


def _check(status: stat_result, origin: str, kind: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise _refused(kind, origin, f"is a directory, not a {kind}")
    if not stat.S_ISREG(status.st_mode):
        raise _refused(kind, origin, "is not a regular file")
    if status.st_size > LARGEST:
        size = f"{status.st_size:,} bytes" if status.st_size < 2 * LARGEST else f"{status.st_size / 2**20:.1f} MiB"
        raise _refused(kind, origin, f"is {size} large, and a {kind} has at most 1 MiB")


def _refused(kind: str, where: str, message: str) -> RequestError:
    return refusal(kind, (Problem(where, message),))


def refusal(kind: str, problems: tuple[Problem, ...]) -> RequestError:
    """Return the one error for everything that is wrong with a file."""
    count = "1 problem" if len(problems) == 1 else f"{len(problems):,} problems"
    rest = len(problems) - MOST_SHOWN
    hint = f"{rest:,} more problems are not shown." if rest > 0 else None
    return RequestError(f"the {kind} is wrong: {count}", problems=problems[:MOST_SHOWN], hint=hint)
