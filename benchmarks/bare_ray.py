"""Start the nodes of a cluster by bare `ray start`, for comparison.

`ray stop` would end other people's Ray, too. Therefore this process becomes the reaper of its
grandchildren: Ray's daemons become its children, and are ended by id.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from trainyard_runner.node import proctree

RAY = str(Path(sys.executable).with_name("ray"))
PORT = 26379


def seconds_to_start(*, workers: int, env: Mapping[str, str], directory: Path) -> float:
    """Start a head, then all workers at once; return the seconds. All nodes are then ended."""
    proctree.become_subreaper()
    began = time.perf_counter()
    try:
        _start(["--head", f"--port={PORT}", "--dashboard-port=28265"], "head", env, directory).wait(
            timeout=120
        )
        started = [
            _start([f"--address=127.0.0.1:{PORT}"], f"w{index}", env, directory)
            for index in range(workers)
        ]
        for process in started:
            process.wait(timeout=120)

        return time.perf_counter() - began
    finally:
        proctree.end(lambda: proctree.descendants(os.getpid()), grace=1.0)


def _start(
    where: list[str], name: str, env: Mapping[str, str], directory: Path
) -> subprocess.Popen[bytes]:
    command = [
        RAY,
        "start",
        *where,
        "--num-cpus=2",
        "--disable-usage-stats",
        f"--temp-dir={directory / name}",
    ]
    with (directory / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, env=dict(env), stdout=log, stderr=log)
