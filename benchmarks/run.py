"""`make bench`: print the costs of Trainyard next to those of the tools that it calls."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import bare_ray, bare_tasks, containers, ec2, hosts, kubernetes, tune
from benchmarks.measure import (
    INVOKE,
    Measured,
    in_turns,
    newest_events,
    output_of,
    seconds_of,
    write_tasks,
)

TASKS = 1000
# Files of 1 KiB.
FILES = 10_000
CLUSTER = """\
name: bench
backend: local
head: {cpus: 2}
workers:
  - {name: gpu, count: 2, cpus: 2, gpus: 1}
local: {simulated_gpus: true}
"""
NOOP = "command: ['true']\n"
MANY = f"""\
command: ['true']
matrix: {{i: {list(range(TASKS))}}}
env: {{I: "{{i}}"}}
resources: {{cpus: 0.5, gpus: 0.5}}
"""


class Bench:
    """A directory with a cluster file and three jobs, and the environment of all commands."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.env = {
            **os.environ,
            "XDG_STATE_HOME": str(directory / "state"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "RAY_USAGE_STATS_ENABLED": "0",
        }

        (directory / "cluster.yaml").write_text(CLUSTER)
        for name, text in (("noop", NOOP), ("many", MANY), ("files", NOOP)):
            (directory / "jobs" / name).mkdir(parents=True)
            (directory / "jobs" / name / "job.yaml").write_text(text)

        for number in range(FILES):
            (directory / "jobs" / "files" / f"{number}.bin").write_bytes(
                number.to_bytes(4, "big") * 256
            )

        write_tasks(directory)

    def invoke(self, *words: str) -> float:
        return seconds_of([*INVOKE, *words], env=self.env, cwd=self.directory)

    def on_cluster(self, *words: str) -> float:
        return self.invoke(*words, "-f", str(self.directory / "cluster.yaml"))

    def ray_job_submit(self, *flags: str) -> float:
        """Submit `true` with Ray's own command line; return the seconds."""
        began = time.perf_counter()
        self._submit("true", flags=flags)
        return time.perf_counter() - began

    def bare_tasks(self, *words: str) -> float:
        """Run TASKS tasks by Ray alone, in a Ray job; return the seconds per task."""
        printed = self._submit(sys.executable, bare_tasks.__file__, str(TASKS), *words)
        return float(re.findall(r"^seconds per task: (.+)$", printed, re.MULTILINE)[-1])

    def _submit(self, *words: str, flags: tuple[str, ...] = ()) -> str:
        token = next((self.directory / "state").rglob("token"))
        status = [*INVOKE, "cluster.status", "-f", str(self.directory / "cluster.yaml"), "--json"]
        address = json.loads(output_of(status, env=self.env, cwd=self.directory))["address"]
        env = {**self.env, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
        command = [bare_ray.RAY, "job", "submit", "--address", address, *flags, "--", *words]
        return output_of(command, env=env, cwd=self.directory)

    def thousand_tasks(self) -> float:
        """Run the job `many`; return the seconds per task.

        They count from the first attempt's start to the last one's end.
        """
        self.on_cluster("train.dispatch", "jobs/many")
        times = [
            event["time"]
            for event in newest_events(self.directory, "many")
            if event["event"] in ("attempt-started", "attempt-ended")
        ]
        return float(max(times) - min(times)) / TASKS


def main() -> None:
    """Measure everything once and print one line each."""
    print(f"{'':<58} {'ours, s':>9} {'theirs, s':>9} {'ratio':>8}  bar")
    with tempfile.TemporaryDirectory(prefix="tyb-", dir="/tmp") as directory:
        bench = Bench(Path(directory))
        for measured in _measure(bench):
            print(measured.line(), flush=True)

    for measure in (
        tune.measure,
        containers.measure,
        kubernetes.measure,
        hosts.measure,
        ec2.measure,
    ):
        with tempfile.TemporaryDirectory(prefix="tyb-", dir="/tmp") as directory:
            for measured in measure(Path(directory)):
                print(measured.line(), flush=True)


def _measure(bench: Bench) -> list[Measured]:
    listing = min(bench.invoke("--list") for _ in range(5))
    bare = bare_ray.seconds_to_start(workers=2, env=bench.env, directory=bench.directory)
    up = bench.on_cluster("cluster.up")

    try:
        again = min(bench.on_cluster("cluster.up") for _ in range(3))
        run, submit = in_turns(
            lambda: bench.on_cluster("train.dispatch", "jobs/noop"), bench.ray_job_submit
        )
        files, sent = in_turns(
            lambda: bench.on_cluster("train.dispatch", "jobs/files"),
            lambda: bench.ray_job_submit("--working-dir", "jobs/files"),
        )
        each, bare_each = in_turns(bench.thousand_tasks, bench.bare_tasks)
        streamed = bench.bare_tasks("stream")
    finally:
        bench.on_cluster("cluster.down")

    return [
        Measured("invoke --list", listing, bar="<= 0.5 s"),
        Measured("cluster.up, head + 2 workers / bare ray start of the same", up, bare),
        Measured("cluster.up again", again, bar="<= 2 s"),
        Measured("no-op run with its gate / ray job submit -- true", run, submit, bar="<= 0.5x"),
        Measured("the same of a job of 10,000 files / with --working-dir", files, sent),
        Measured(
            "one of 1,000 half-GPU tasks that run true / by bare Ray", each, bare_each, bar="<= 3x"
        ),
        Measured("the same as streaming generators of bare Ray / its tasks", streamed, bare_each),
    ]


if __name__ == "__main__":
    main()
