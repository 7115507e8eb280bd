"""Runs in a Ray job: half-GPU tasks that run `true`, by Ray alone; prints seconds per task.

    python bare_tasks.py COUNT [stream]

With `stream` each is a streaming generator that yields once, as Trainyard's are: what is left is
Trainyard's own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import ray


def run() -> tuple[float, float]:
    """Run `true`; return when that began and ended."""
    began = time.time()
    subprocess.run(["true"], check=True)
    return began, time.time()


def stream() -> Iterator[tuple[float, float]]:
    """Do the same as a generator."""
    yield run()


def main(count: int, *, streaming: bool) -> None:
    """Run them all, as many at once as fit."""
    ray.init(logging_level="ERROR")
    options = {"num_cpus": 0.5, "num_gpus": 0.5, "max_calls": 0, "max_retries": 0}
    if streaming:
        task = ray.remote(**options, num_returns="streaming")(stream)
        times = [ray.get(next(found)) for found in [task.remote() for _ in range(count)]]
    else:
        plain = ray.remote(**options)(run)
        times = ray.get([plain.remote() for _ in range(count)])
    print(
        "seconds per task: "
        f"{(max(end for _, end in times) - min(began for began, _ in times)) / count:.5f}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), streaming="stream" in sys.argv)
