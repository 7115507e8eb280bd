"""A lock: only one command at a time may change a cluster or registry."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainyard import paths
from trainyard.errors import NotReadyError
from trainyard.steps import Progress, StepResult

WAIT_SECONDS = 600.0


@contextmanager
def alone(path: Path, progress: Progress, *, keep: Callable[[], bool], what: str) -> Iterator[None]:
    """Hold a cluster's or registry's lock file, so that other commands wait.

    Afterwards, the file is removed unless `keep` returns true. The kernel frees
    the lock of a killed process. Raises NotReadyError if another command holds
    the lock for WAIT_SECONDS, and PrerequisiteError if this user may not write
    the file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = taken(path)
        if descriptor is None:
            descriptor = _wait(path, progress, what)
    except PermissionError as error:
        raise paths.not_writable(path.parent, error) from error
    try:
        yield
    finally:
        if not keep():
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _wait(path: Path, progress: Progress, what: str) -> int:
    title = f"Wait for another command on this {what}"
    began = time.monotonic()
    progress.started(title)
    while (descriptor := taken(path)) is None:
        if time.monotonic() > began + WAIT_SECONDS:
            progress.failed(title, WAIT_SECONDS)
            raise NotReadyError(
                f"another command is still changing this {what}",
                where=str(path),
                hint="Wait until that command ends, or end it, then repeat this one.",
            )
        time.sleep(0.1)
    progress.finished(StepResult(title, True, time.monotonic() - began))
    return descriptor


def taken(path: Path) -> int | None:
    """Lock a file, and return its descriptor; None if it is locked or gone."""
    # Without O_NOFOLLOW, a symbolic link could make root create or lock a file elsewhere.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.stat().st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None
