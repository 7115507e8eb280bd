"""Change a settings file of the system: a copy of it beside it, then the whole new one at once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from trainyard.errors import PrerequisiteError


def backup_of(path: Path, *, now: datetime) -> Path:
    """Return what the copy of a file is called that is made before it is changed."""
    return path.with_name(f"{path.name}.{now:%Y%m%d-%H%M%S}")


def read(path: Path) -> str:
    """Return the text of a file, "" if there is none. Raises PrerequisiteError when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise PrerequisiteError(f"{path} cannot be read: {error}", hint="Look at it as root: sudo less") from error


def replace(path: Path, text: str, *, backup: Path, check: Callable[[Path], None], hint: str) -> None:
    """Write the text: checked first, in one step, with the old file's owner and mode, and a copy of that left.

    A link is followed, so that it stays one. Raises PrerequisiteError when that is not allowed.
    """
    target = path.resolve()
    new = target.with_name(f"{target.name}.trainyard-new")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _write_like(target, new, text)
        check(new)
        if target.exists():
            _copy(target, backup)
        new.replace(target)
    except OSError as error:
        raise PrerequisiteError(f"{path} cannot be written: {error.strerror}", hint=hint) from error
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def place(path: Path, content: bytes, *, hint: str) -> None:
    """Write a file that everybody may read, in one step, with the directories above it."""
    new = path.with_name(f".{path.name}.new")
    try:
        missing = [one for one in (path.parent, *path.parent.parents) if not one.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        for one in missing:
            one.chmod(0o755)
        new.write_bytes(content)
        # Whatever root's umask is: programs of other users read it too, ours among them.
        new.chmod(0o644)
        new.replace(path)
    except OSError as error:
        raise PrerequisiteError(f"{path} cannot be written: {error.strerror}", hint=hint) from error


def _write_like(old: Path, new: Path, text: str) -> None:
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        if old.exists():
            _take_after(old, new)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _copy(old: Path, backup: Path) -> None:
    shutil.copyfile(old, backup)
    _take_after(old, backup)


def _take_after(old: Path, new: Path) -> None:
    """Give a file the mode, the owner and the security label of another."""
    found = old.stat()
    os.chown(new, found.st_uid, found.st_gid)
    shutil.copystat(old, new)
