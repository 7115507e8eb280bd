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

    The kernel lets go of the lock when its holder dies, however that happens. Directories and file become those of
    whoever has the directory above: a command under sudo must not lock its user out.
    Raises NotReadyError when it is not free in time, PrerequisiteError when it cannot be written.
    """
    try:
        _make_directories(path.parent)
        descriptor = _acquire(path, waiting, what)
    except PermissionError as error:
        raise paths.not_writable(path.parent, error) from error
    try:
        yield
    finally:
        if not keep():
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _make_directories(directory: Path) -> None:
    missing = [one for one in (directory, *directory.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(exist_ok=True, mode=0o700)
        if os.geteuid() == 0:
            os.chown(one, *_owner(one.parent), follow_symlinks=False)


def _owner(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid


def _open(path: Path) -> int:
    """Open the file, made if it is not there; no link is followed, so that root changes nothing else."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, flags, 0o600)
    if os.geteuid() == 0:
        os.fchown(descriptor, *_owner(path.parent))
    return descriptor


def _acquire(path: Path, waiting: Callable[[], None], what: str) -> int:
    give_up = time.monotonic() + WAIT_SECONDS
    told = False
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still_there(path, descriptor):
                return descriptor
        except BlockingIOError:
            if not told:
                waiting()
            told = True
        os.close(descriptor)
        if time.monotonic() > give_up:
            raise NotReadyError(
                f"another command is still changing this {what}",
                where=str(path),
                hint="Wait for it, or end it; then repeat this one.",
            )
        time.sleep(0.1)


def _is_still_there(path: Path, descriptor: int) -> bool:
    """Say that the last holder did not remove the file that we waited for."""
    try:
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False
