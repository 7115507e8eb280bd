"""The directories of the bed, and the requirements that the machine must meet."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainyard-bed"
# Short, since a socket's path has at most 107 characters.
RUN = Path("/run/trainyard-bed")
HERE = Path(__file__).resolve().parent
CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21


def all_must_run() -> bool:
    """Return whether a skipped test counts as a failure."""
    return os.environ.get("TRAINYARD_TESTS") == "all"


def may_mount(status: Path = Path("/proc/self/status")) -> bool:
    """Return whether a process with this status may mount and create networks.

    A process in an ordinary container may not.
    """
    if not status.exists():
        return False
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    rights = int(fields["CapEff"], 16)
    return all(rights >> capability & 1 for capability in (CAP_NET_ADMIN, CAP_SYS_ADMIN))


def need(programs: Sequence[str]) -> None:
    """Skip the test if a program or right is missing, or fail it where all tests must run."""
    missing = [program for program in programs if shutil.which(program) is None]
    if os.geteuid() != 0:
        missing.append("root (the bed runs a Docker engine of its own)")
    elif not may_mount():
        missing.append("the right to mount and to make networks (this container has neither)")
    if missing:
        missed = f"missing: {', '.join(missing)} -> make test brings it"
        if all_must_run():
            pytest.fail(missed, pytrace=False)
        pytest.skip(missed)


def run(
    command: Sequence[str], *, seconds: float = 900.0, **options: object
) -> subprocess.CompletedProcess[str]:
    """Run a program of the bed; if it fails, raise an error that has its output."""
    done = subprocess.run(  # type: ignore[call-overload]
        list(command),
        capture_output=True,
        text=True,
        timeout=seconds,
        stdin=subprocess.DEVNULL,
        **options,
    )
    if done.returncode != 0:
        raise RuntimeError(
            f"{' '.join(command)} exited "
            f"{done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )

    return done  # type: ignore[no-any-return]


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a lock that one test run at a time can have; taking it twice is a deadlock."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("", 0))
        return int(asked.getsockname()[1])
