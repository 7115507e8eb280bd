"""Run half-GPU tasks with `true` by Ray alone, inside a Ray job; print the seconds per task.

    python bare_tasks.py COUNT [stream]

With `stream`, each task is a streaming generator that yields once, as Trainyard's tasks are. The
rest of the difference is Trainyard's own cost.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import ray


def run() -> tuple[float, float]:
    """Run `true`; return its begin and end, in Unix seconds."""
    began = time.time()
    subprocess.run(["true"], check=True)
    return began, time.time()


def stream() -> Iterator[tuple[float, float]]:
    yield run()


def main(count: int, *, streaming: bool) -> None:
    """Run `count` tasks, as many at once as fit; print the seconds per task."""
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
