"""One command at a time may change a cluster, or a registry."""

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
    """Keep other commands from changing a cluster or registry meanwhile; show it when we wait for one."""
    title = f"Wait for another command on this {what}"
    began = time.monotonic()
    waited: list[str] = []

    def waiting() -> None:
        waited.append(title)
        progress.started(title)

    with held(path, waiting=waiting, keep=keep, what=what):
        if waited:
            progress.finished(StepResult(title, True, time.monotonic() - began))
        yield


@contextmanager
def held(path: Path, *, waiting: Callable[[], None], keep: Callable[[], bool], what: str = "cluster") -> Iterator[None]:
    """Hold a lock file; wait for whoever holds it, calling `waiting` once; remove it after, unless `keep`.

    The kernel lets go of the lock when its holder dies, however that happens.
    Raises NotReadyError when it is not free in time, PrerequisiteError when it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = taken(path)
        if descriptor is None:
            waiting()
            descriptor = _wait(path, what)
    except PermissionError as error:
        raise paths.not_writable(path.parent, error) from error
    try:
        yield
    finally:
        if not keep():
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _wait(path: Path, what: str) -> int:
    give_up = time.monotonic() + WAIT_SECONDS
    while (descriptor := taken(path)) is None:
        if time.monotonic() > give_up:
            raise NotReadyError(
                f"another command is still changing this {what}",
                where=str(path),
                hint="Wait for it, or end it; then repeat this one.",
            )
        time.sleep(0.1)
    return descriptor


def taken(path: Path) -> int | None:
    """Return the locked file; None while another command holds it, or when that removed it as we opened it."""
    # No link is followed, so that root changes nothing else.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.stat().st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None
