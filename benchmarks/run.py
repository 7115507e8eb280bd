"""`make bench`: print what Trainyard costs beside what it stands on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import bare_ray, containers, kubernetes
from benchmarks.measure import INVOKE, Measured, in_turns, seconds_of

TASKS = 1000
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
    """A directory with a cluster file and two jobs, and the environment that every command gets."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.env = {
            **os.environ,
            "XDG_STATE_HOME": str(directory / "state"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        (directory / "cluster.yaml").write_text(CLUSTER)
        for name, text in (("noop", NOOP), ("many", MANY)):
            (directory / "jobs" / name).mkdir(parents=True)
            (directory / "jobs" / name / "job.yaml").write_text(text)
        (directory / "tasks.py").write_text("from trainyard.tasks import namespace\n")
        (directory / "invoke.yaml").write_text("tasks: {executor_class: trainyard.tasks.executor.TrainyardExecutor}\n")

    def invoke(self, *words: str) -> float:
        """Run one of our commands; seconds."""
        return seconds_of([*INVOKE, *words], env=self.env, cwd=self.directory)

    def on_cluster(self, *words: str) -> float:
        """Run one of our commands on the benchmark's cluster; seconds."""
        return self.invoke(*words, "-f", str(self.directory / "cluster.yaml"))

    def ray_job_submit(self) -> float:
        """Submit `true` with Ray's own command line; seconds."""
        token = next((self.directory / "state").rglob("token"))
        status = subprocess.run(
            [*INVOKE, "cluster.status", "-f", str(self.directory / "cluster.yaml"), "--json"],
            env=self.env, cwd=self.directory, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        env = {**self.env, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
        address = json.loads(status.stdout)["address"]
        return seconds_of(
            [bare_ray.RAY, "job", "submit", "--address", address, "--", "true"], env=env, cwd=self.directory
        )

    def thousand_tasks(self) -> float:
        """Return seconds per task of the newest run, from its first attempt's start to its last one's end."""
        newest = max((self.directory / "results").glob("many-*/events.jsonl"), key=lambda path: path.stat().st_mtime)
        events = [json.loads(line) for line in newest.read_text().splitlines()]
        times = [event["time"] for event in events if event["event"] in ("attempt-started", "attempt-ended")]
        return float(max(times) - min(times)) / TASKS


def main() -> None:
    """Measure everything once and print one line each."""
    print(f"{'':<58} {'ours, s':>9} {'theirs, s':>9} {'ratio':>8}  bar")
    with tempfile.TemporaryDirectory(prefix="tyb-", dir="/tmp") as directory:
        bench = Bench(Path(directory))
        for measured in _measure(bench):
            print(measured.line(), flush=True)
    for measure in (containers.measure, kubernetes.measure):
        with tempfile.TemporaryDirectory(prefix="tyb-", dir="/tmp") as directory:
            for measured in measure(Path(directory)):
                print(measured.line(), flush=True)


def _measure(bench: Bench) -> list[Measured]:
    listing = min(bench.invoke("--list") for _ in range(5))
    bare = bare_ray.seconds_to_start(workers=2, env=bench.env, directory=bench.directory)
    up = bench.on_cluster("cluster.up")
    try:
        again = min(bench.on_cluster("cluster.up") for _ in range(3))
        run, submit = in_turns(lambda: bench.on_cluster("train.dispatch", "jobs/noop"), bench.ray_job_submit)
        bench.on_cluster("train.dispatch", "jobs/many")
        each, xargs = in_turns(bench.thousand_tasks, _xargs, rounds=1)
    finally:
        bench.on_cluster("cluster.down")
    return [
        Measured("invoke --list", listing, bar="<= 0.5 s"),
        Measured("cluster.up, head + 2 workers / bare ray start of the same", up, bare),
        Measured("cluster.up again", again, bar="<= 2 s"),
        Measured("no-op run with its gate / ray job submit -- true", run, submit, bar="<= 0.6x"),
        Measured("one of 1,000 half-GPU tasks that run true / xargs -P4", each, xargs, bar="<= 0.005 s"),
    ]


def _xargs() -> float:
    """Return seconds per task of the same under xargs."""
    began = time.perf_counter()
    subprocess.run(
        ["xargs", "-P4", "-n1", "true"], input="\n".join(map(str, range(TASKS))), text=True, check=True, timeout=120
    )
    return (time.perf_counter() - began) / TASKS


if __name__ == "__main__":
    main()
