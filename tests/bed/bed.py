"""The engine that the tests share, and the ones that belong to a single test."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bed import images
from tests.bed.engine import BedEngine
from tests.bed.places import CACHE, need

PROGRAMS = ("dockerd", "docker", "docker-registry", "mmdebstrap", "ip")
SHARED = BedEngine("shared", CACHE / "engine", 1)


@contextmanager
def shared_engine() -> Iterator[BedEngine]:
    """Give the engine with every image of the bed; one that already ran goes on running afterwards."""
    need(PROGRAMS)
    ours = start()
    try:
        yield SHARED
    finally:
        if ours:
            SHARED.clear()
            SHARED.stop()


def start() -> bool:
    """Start the shared engine, with its images; say whether it had to be started."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ours = SHARED.pid is None
        SHARED.start()
        if ours:
            # What a killed test run left: containers with a restart policy come back with their engine.
            SHARED.clear()
        images.ensure_all(SHARED)
    return ours


@contextmanager
def private_engine(data: Path) -> Iterator[BedEngine]:
    """Give an engine that a test may restart and configure as it likes; test runs side by side get different ones."""
    need(PROGRAMS)
    number = 2 + os.getpid() % 240
    engine = BedEngine(f"p{number}", data, number, filters=False)
    try:
        engine.start()
        yield engine
    finally:
        engine.remove()
