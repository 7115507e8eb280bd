"""Directories of results as a run leaves them, built by hand: event by event, with a clock that tests set."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter

from trainyard.results import store

BEGAN = 1_790_000_000.0  # 2026-09-21 14:13:20 UTC

JOB = """name: cartpole
command: [python, train.py, --seed, "{seed}"]
matrix: {seed: [0, 1, 2, 3]}
resources: {cpus: 1, gpus: 0, memory: 500MiB}
retries: 1
timeout: 10m
"""
CLUSTER = """name: local
backend: local
head: {cpus: 1}
workers:
- {name: cpu, count: 2, cpus: 2}
"""


class RecordedRun:
    """One run under `home`; times are seconds after its beginning."""

    def __init__(self, home: Path, *tasks: str, run: str = "cartpole-20260921-141320-1a2b", **record: Any) -> None:
        known = {
            "run": run,
            "job": "cartpole",
            "cluster": "local",
            "backend": "local",
            "started": "2026-09-21T14:13:20+00:00",
            "git": {"revision": "daacb131c0ffee5a4d0f", "dirty": True},
            "image": None,
            "versions": {"trainyard": "0.1.0", "python": "3.11.9", "ray": "2.60.0", "runner_protocol": 1},
            "user": "ops",
            "host": "laptop",
            "command": ["invoke", "train.dispatch", "jobs/cartpole"],
            "tasks": list(tasks),
            "skip_smoke": False,
            "simulated_gpus": False,
        }
        job_file = JOB.replace("[0, 1, 2, 3]", str(list(range(len(tasks)))))
        self.directory = store.create(home, known | record, cluster=CLUSTER, job=job_file)
        self._events: list[dict[str, Any]] = []

    @property
    def path(self) -> Path:
        return self.directory.path

    def event(self, at: float, event: str, **fields: Any) -> None:
        self._events.append({"time": BEGAN + at, "event": event, **fields})

    def attempt(
        self, task: str, node: str | None, start: float, seconds: float, *, number: int = 1, **ended: Any
    ) -> None:
        """Record an attempt from start to end; it succeeds unless `outcome` says otherwise."""
        self.event(start, "attempt-started", task=task, attempt=number, node=node, node_id="ab12", gpus=[])
        outcome = ended.pop("outcome", "succeeded")
        known: dict[str, Any] = {"exit_code": int(outcome != "succeeded"), "reason": None, "tail": [], "output": None}
        known |= {"cpu_seconds": seconds * 0.9, "max_rss": 150 * 2**20}
        fields = {"task": task, "attempt": number, "node": node, "seconds": seconds, "outcome": outcome}
        self.event(start + seconds, "attempt-ended", **(known | fields | ended))
        self.directory.log(task, number).write_text("".join(f"{line}\n" for line in ended.get("tail", ())), "utf-8")

    def curve(self, task: str, *tags: str, steps: int = 60, seed: int = 0) -> None:
        """Write learning curves among a task's outputs."""
        chance = random.Random(seed)
        with SummaryWriter(str(self.directory.outputs(task))) as writer:
            for tag in tags or ("eval/mean_return",):
                for index in range(steps):
                    value = 500 / (1 + math.exp(-(index - steps / 2) / (steps / 9))) + chance.gauss(0, 18)
                    writer.add_scalar(tag, min(500.0, max(9.0, value)), index * 9_000)

    def lines(self, task: str, **values: list[float]) -> None:
        """Write curves by tag, their values at steps 0, 1, 2 and so on, one a second."""
        with SummaryWriter(str(self.directory.outputs(task))) as writer:
            for tag, line in values.items():
                for step, value in enumerate(line):
                    writer.add_scalar(tag, value, step, walltime=BEGAN + 1 + step)

    def write(self) -> Path:
        """Write the events, in the order of their times; return the directory."""
        ordered = sorted(self._events, key=lambda event: float(event["time"]))
        with self.directory.events.open("w", encoding="utf-8") as file:
            for number, event in enumerate(ordered):
                file.write(json.dumps({"seq": number, **event}) + "\n")
        return self.path


def started(run: RecordedRun, *, at: float = 0.0) -> None:
    """Record that a run began, and a smoke test that passed."""
    run.event(at, "run-started", run="r", job="cartpole", node_id="ab12", ray="2.60.0", python="3.11.9", tasks=4)
    machine = {"cpu": "AMD EPYC 9654", "cores": 8, "memory": 32 * 2**30, "system": "Debian GNU/Linux 12"}
    versions = {"python": "3.11.9", "ray": "2.60.0", "packages": {"numpy": "2.1.3", "gymnasium": "1.2.0"}}
    for node in ("head", "cpu-0", "cpu-1"):
        run.event(at + 0.4, "check", name="task", node=node, ok=True, detail="ran", seconds=0.31, skipped=False)
        run.event(at + 0.4, "node", name=node, group=None, gpus=[], **machine, **versions)
    detail = "412 MB/s to cpu-1"
    run.event(at + 0.8, "check", name="transfer", node="cpu-0", ok=True, detail=detail, seconds=0.2, skipped=False)
    run.event(at + 0.8, "check", name="gpus", node=None, ok=True, detail="no GPUs declared", seconds=0.0, skipped=True)
    run.event(at + 0.9, "gate", ok=True, seconds=0.9)


def ended(
    run: RecordedRun, at: float, *, state: str = "succeeded", exit_code: int = 0, error: str | None = None
) -> None:
    """Record the end of a run."""
    hint = "See the last lines below." if error else None
    counts = {"succeeded": 4, "failed": 0, "stopped": 0}
    run.event(at, "run-ended", state=state, exit=exit_code, seconds=at, counts=counts, error=error, hint=hint)


def eventful(home: Path) -> RecordedRun:
    """Build a run with a bit of everything: a lost node, a restore, a failure, a timeout, a stopped task."""
    tasks = [f"seed={seed}" for seed in range(6)]
    run = RecordedRun(home, *tasks)
    started(run)
    run.attempt("seed=0", "cpu-0", 1.0, 7.2)
    run.event(3.0, "checkpoint", task="seed=1", attempt=1, bytes=2048, files=1)
    run.event(5.0, "checkpoint", task="seed=1", attempt=1, bytes=2048, files=1)
    lost: dict[str, Any] = {"outcome": "lost", "exit_code": None, "cpu_seconds": None, "max_rss": None}
    run.attempt("seed=1", "cpu-1", 1.0, 5.4, reason="node cpu-1 died", **lost)
    run.attempt("seed=1", "cpu-0", 6.9, 5.0, number=2)
    tail = ["Traceback (most recent call last):", '  File "train.py", line 88, in improve', "ValueError: bad <shape>"]
    run.attempt("seed=2", "cpu-0", 1.2, 2.6, outcome="failed", reason="exit code 1", tail=tail)
    run.attempt("seed=2", "cpu-0", 4.0, 6.1, number=2)
    late: dict[str, Any] = {"outcome": "timeout", "exit_code": None, "reason": "longer than 6 s"}
    run.attempt("seed=3", "head", 1.1, 6.0, tail=["iteration 20", "iteration 40"], **late)
    run.attempt("seed=4", "head", 7.3, 4.9)
    run.attempt("seed=5", "head", 12.3, 1.4, outcome="stopped", exit_code=-15, reason="the run was stopped")
    for seed in (0, 1, 2, 4):
        run.curve(f"seed={seed}", "rollout/return", "eval/mean_return", "train/gradient_norm", seed=seed)
    for seed in range(6):
        state = {3: "failed", 5: "stopped"}.get(seed, "succeeded")
        run.event(13.9, "task-ended", task=f"seed={seed}", state=state, attempts=1)
    ended(run, 14.0, state="failed", exit_code=1, error="1 of 6 tasks failed")
    return run


def smooth(home: Path, *, tasks: int = 4) -> RecordedRun:
    """Build a run where all went well."""
    names = [f"seed={seed}" for seed in range(tasks)]
    run = RecordedRun(home, *names)
    started(run)
    for seed, name in enumerate(names):
        run.attempt(name, ("head", "cpu-0", "cpu-1")[seed % 3], 1.0 + 6.5 * (seed // 12), 6.0 + (seed * 7 % 5) / 5)
        run.curve(name, seed=seed)
        run.event(8.0 + 6.5 * (seed // 12), "task-ended", task=name, state="succeeded", attempts=1)
    ended(run, 9.0 + 6.5 * (tasks // 12))
    return run
