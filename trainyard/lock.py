"""One command at a time may change a cluster."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainyard.errors import NotReadyError

WAIT_SECONDS = 600.0


@contextmanager
def held(path: Path, *, waiting: Callable[[], None], keep: Callable[[], bool]) -> Iterator[None]:
    """Hold a lock file; wait for whoever holds it, calling `waiting` once; remove it after, unless `keep`.

    The kernel lets go of the lock when its holder dies, however that happens.
    Raises NotReadyError when it is not free in time.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = _acquire(path, waiting)
    try:
        yield
    finally:
        if not keep():
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _acquire(path: Path, waiting: Callable[[], None]) -> int:
    give_up = time.monotonic() + WAIT_SECONDS
    told = False
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
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
                "another command is still changing this cluster",
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
