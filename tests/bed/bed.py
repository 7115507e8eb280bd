"""The engine that the tests share, and the ones that belong to a single test."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.bed import images
from tests.bed.engine import BedEngine
from tests.bed.places import CACHE, RUN, locked, need

PROGRAMS = ("dockerd", "docker", "docker-registry", "mmdebstrap", "ip")
SHARED = BedEngine("shared", CACHE / "engine", 1)
# It is there while the engine is one that ends with its last user.
OURS = SHARED.directory / "started-by-tests"
# Files of clusters that a developer runs by hand, each in a directory: they use the engine, too.
BY_HAND = RUN / "by-hand"


@contextmanager
def shared_engine() -> Iterator[BedEngine]:
    """Give the engine with every image of the bed; the last test run that uses it ends it, if a
    test run began it.
    """
    need(PROGRAMS)
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "users").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        start(kept=False)
        try:
            yield SHARED
        finally:
            with locked("lock"):
                _end(users)


def start(*, kept: bool) -> None:
    """Start the shared engine, with its images; a `kept` one outlives the tests that use it."""
    with locked("lock"):
        if SHARED.pid is None:
            SHARED.start()
            # Leftovers of a killed test run: its containers restart with their engine.
            SHARED.clear()
            OURS.touch()
        if kept:
            OURS.unlink(missing_ok=True)
        images.ensure_all(SHARED)


def leave() -> None:
    """End the engine if it has no users any more."""
    with (CACHE / "users").open("w") as users, locked("lock"):
        _end(users)


def _end(users: IO[str]) -> None:
    """End the engine unless it has other users: only the last one gets the file for itself."""
    if BY_HAND.is_dir() and any(BY_HAND.iterdir()):
        return
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    if OURS.exists():
        SHARED.clear()
        SHARED.prune()
        SHARED.stop()
        SHARED.withdraw()
        OURS.unlink()


@contextmanager
def private_engine(data: Path) -> Iterator[BedEngine]:
    """Give an engine that a test may restart and configure as it likes; test runs side by side get
    different ones.
    """
    need(PROGRAMS)
    number = 2 + os.getpid() % 240
    engine = BedEngine(f"p{number}", data, number, filters=False)
    try:
        engine.start()
        yield engine
    finally:
        engine.remove()
