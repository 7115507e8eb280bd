"""The process that answers the AWS API, and the number that tells clouds apart."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO

from tests.bed.aws_api import Settings
from tests.bed.places import CACHE

AT_ONCE = 8


@contextmanager
def number() -> Iterator[int]:
    """Give a number that no other cloud on this machine has; wait while all are taken."""
    CACHE.mkdir(parents=True, exist_ok=True)
    while True:
        for free in range(1, AT_ONCE + 1):
            with (CACHE / f"ec2-{free}").open("w") as lock:
                if _taken(lock):
                    continue
                yield free
                return
        time.sleep(1)


def _taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


@contextmanager
def serve(settings: Settings) -> Iterator[None]:
    """Run the API in a separate process; the settings' directory must contain control.json."""
    directory = Path(settings.directory)
    (directory / "settings.json").write_text(json.dumps(asdict(settings)))
    log = directory / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.bed.aws_api", str(directory / "settings.json")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    try:
        give_up = time.monotonic() + 180
        while not _answers(f"http://{settings.address}:{settings.port}/moto-api/"):
            if process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"the AWS API did not start\n{log.read_text()}")
            time.sleep(0.2)
        yield
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with suppress(OSError), opener.open(url, timeout=5):
        return True
    return False
