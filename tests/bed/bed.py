"""The engine that all tests share, and engines that belong to a single test."""

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
# This file exists while the shared engine is one that ends with its last user.
OURS = SHARED.directory / "started-by-tests"
# Files of clusters that a developer runs by hand, one directory each: they use the engine as well.
BY_HAND = RUN / "by-hand"


@contextmanager
def shared_engine() -> Iterator[BedEngine]:
    """Give the shared engine, with every image of the bed.

    The last test run that uses the engine ends it, unless a developer started it.
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
    """Start the shared engine and build its images; a `kept` engine outlives the test runs."""
    with locked("lock"):
        if SHARED.pid is None:
            SHARED.start()
            # A killed test run leaves containers, which restart with their engine.
            SHARED.clear()
            OURS.touch()
        if kept:
            OURS.unlink(missing_ok=True)
        images.ensure_all(SHARED)


def leave() -> None:
    """End the engine if it has no users left."""
    with (CACHE / "users").open("w") as users, locked("lock"):
        _end(users)


def _end(users: IO[str]) -> None:
    """End the engine unless it has other users: only its last user can lock `users` exclusively."""
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
    """Give an engine that a test may restart and configure freely.

    Test runs at the same time get different engines.
    """
    need(PROGRAMS)
    number = 2 + os.getpid() % 240
    engine = BedEngine(f"p{number}", data, number, filters=False)
    try:
        engine.start()
        yield engine
    finally:
        engine.remove()
