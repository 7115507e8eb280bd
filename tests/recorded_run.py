"""Directories of results as a run leaves them, made event by event with times that tests set."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter

from trainyard.results import store
from trainyard.spec.yaml_source import compose

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
    """One run under `home`; times are seconds since the run began."""

    def __init__(
        self, home: Path, *tasks: str, run: str = "cartpole-20260921-141320-1a2b", **record: Any
    ) -> None:
        known = {
            "run": run,
            "job": "cartpole",
            "cluster": "local",
            "backend": "local",
            "started": "2026-09-21T14:13:20+00:00",
            "git": {"revision": "daacb131c0ffee5a4d0f", "dirty": True},
            "image": None,
            "versions": {
                "trainyard": "0.1.0",
                "python": "3.11.9",
                "ray": "2.60.0",
                "runner_protocol": 1,
            },
            "user": "ops",
            "host": "laptop",
            "command": ["trainyard", "train.dispatch", "jobs/cartpole"],
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
        self,
        task: str,
        node: str | None,
        start: float,
        seconds: float,
        *,
        number: int = 1,
        **ended: Any,
    ) -> None:
        """Record an attempt from start to end; it succeeds unless `outcome` says otherwise."""
        self.event(
            start, "attempt-started", task=task, attempt=number, node=node, node_id="ab12", gpus=[]
        )
        outcome = ended.pop("outcome", "succeeded")

        known: dict[str, Any] = {
            "exit_code": int(outcome != "succeeded"),
            "reason": None,
            "tail": [],
            "output": None,
        }

        known |= {"cpu_seconds": seconds * 0.9, "max_rss": 150 * 2**20}
        fields = {
            "task": task,
            "attempt": number,
            "node": node,
            "seconds": seconds,
            "outcome": outcome,
        }

        self.event(start + seconds, "attempt-ended", **(known | fields | ended))
        self.directory.log(task, number).write_text(
            "".join(f"{line}\n" for line in ended.get("tail", ())), "utf-8"
        )

    def curve(self, task: str, *tags: str, steps: int = 60, seed: int = 0) -> None:
        """Write learning curves among a task's outputs."""
        chance = random.Random(seed)
        with SummaryWriter(str(self.directory.outputs(task))) as writer:
            for tag in tags or ("eval/mean_return",):
                for index in range(steps):
                    value = 500 / (1 + math.exp(-(index - steps / 2) / (steps / 9))) + chance.gauss(
                        0, 18
                    )
                    writer.add_scalar(tag, min(500.0, max(9.0, value)), index * 9_000)

    def lines(self, task: str, **values: list[float]) -> None:
        """Write curves by tag: values are at steps 0, 1, 2 and so on, one second apart."""
        with SummaryWriter(str(self.directory.outputs(task))) as writer:
            for tag, line in values.items():
                for step, value in enumerate(line):
                    writer.add_scalar(tag, value, step, walltime=BEGAN + 1 + step)

    def write(self) -> Path:
        """Write the events, sorted by time; return the directory."""
        ordered = sorted(self._events, key=lambda event: float(event["time"]))
        with self.directory.events.open("w", encoding="utf-8") as file:
            for number, event in enumerate(ordered):
                file.write(json.dumps({"seq": number, **event}) + "\n")
        return self.path


def started(run: RecordedRun, *, at: float = 0.0) -> None:
    """Record that a run began, and a smoke test that passed."""
    run.event(
        at,
        "run-started",
        run="r",
        job="cartpole",
        node_id="ab12",
        ray="2.60.0",
        python="3.11.9",
        tasks=4,
    )

    machine = {
        "cpu": "AMD EPYC 9654",
        "cores": 8,
        "memory": 32 * 2**30,
        "system": "Debian GNU/Linux 12",
    }

    versions = {
        "python": "3.11.9",
        "ray": "2.60.0",
        "packages": {"numpy": "2.1.3", "gymnasium": "1.2.0"},
    }

    for node in ("head", "cpu-0", "cpu-1"):
        run.event(
            at + 0.4,
            "check",
            name="task",
            node=node,
            ok=True,
            detail="ran",
            seconds=0.31,
            skipped=False,
        )

        run.event(at + 0.4, "node", name=node, group=None, gpus=[], **machine, **versions)

    detail = "412 MB/s to cpu-1"
    run.event(
        at + 0.8,
        "check",
        name="transfer",
        node="cpu-0",
        ok=True,
        detail=detail,
        seconds=0.2,
        skipped=False,
    )

    run.event(
        at + 0.8,
        "check",
        name="gpus",
        node=None,
        ok=True,
        detail="no GPUs declared",
        seconds=0.0,
        skipped=True,
    )

    run.event(at + 0.9, "gate", ok=True, seconds=0.9)


def ended(
    run: RecordedRun,
    at: float,
    *,
    state: str = "succeeded",
    exit_code: int = 0,
    error: str | None = None,
) -> None:
    """Record the end of a run."""
    hint = "See the last lines below." if error else None
    counts = {"succeeded": 4, "failed": 0, "stopped": 0}
    run.event(
        at,
        "run-ended",
        state=state,
        exit=exit_code,
        seconds=at,
        counts=counts,
        error=error,
        hint=hint,
    )


def eventful(home: Path) -> RecordedRun:
    """Build a run with a lost node, a restore, a failure, a timeout and a stopped task."""
    tasks = [f"seed={seed}" for seed in range(6)]
    run = RecordedRun(home, *tasks)
    started(run)
    run.attempt("seed=0", "cpu-0", 1.0, 7.2)
    run.event(3.0, "checkpoint", task="seed=1", attempt=1, bytes=2048, files=1)
    run.event(5.0, "checkpoint", task="seed=1", attempt=1, bytes=2048, files=1)

    lost: dict[str, Any] = {
        "outcome": "lost",
        "exit_code": None,
        "cpu_seconds": None,
        "max_rss": None,
    }

    run.attempt("seed=1", "cpu-1", 1.0, 5.4, reason="node cpu-1 died", **lost)
    run.attempt("seed=1", "cpu-0", 6.9, 5.0, number=2)
    tail = [
        "Traceback (most recent call last):",
        '  File "train.py", line 88, in improve',
        "ValueError: bad <shape>",
    ]

    run.attempt("seed=2", "cpu-0", 1.2, 2.6, outcome="failed", reason="exit code 1", tail=tail)
    run.attempt("seed=2", "cpu-0", 4.0, 6.1, number=2)
    late: dict[str, Any] = {"outcome": "timeout", "exit_code": None, "reason": "longer than 6 s"}
    run.attempt("seed=3", "head", 1.1, 6.0, tail=["iteration 20", "iteration 40"], **late)
    run.attempt("seed=4", "head", 7.3, 4.9)
    run.attempt(
        "seed=5", "head", 12.3, 1.4, outcome="stopped", exit_code=-15, reason="the run was stopped"
    )

    for seed in (0, 1, 2, 4):
        run.curve(
            f"seed={seed}", "rollout/return", "eval/mean_return", "train/gradient_norm", seed=seed
        )

    for seed in range(6):
        state = {3: "failed", 5: "stopped"}.get(seed, "succeeded")
        run.event(13.9, "task-ended", task=f"seed={seed}", state=state, attempts=1)

    ended(run, 14.0, state="failed", exit_code=1, error="1 of 6 tasks failed")
    return run


def smooth(home: Path, *, tasks: int = 4) -> RecordedRun:
    """Build a run in which all tasks succeed at the first attempt."""
    names = [f"seed={seed}" for seed in range(tasks)]
    run = RecordedRun(home, *names)
    started(run)

    for seed, name in enumerate(names):
        run.attempt(
            name,
            ("head", "cpu-0", "cpu-1")[seed % 3],
            1.0 + 6.5 * (seed // 12),
            6.0 + (seed * 7 % 5) / 5,
        )
        run.curve(name, seed=seed)
        run.event(8.0 + 6.5 * (seed // 12), "task-ended", task=name, state="succeeded", attempts=1)

    ended(run, 9.0 + 6.5 * (tasks // 12))
    return run


SWEEP = """name: cartpole
command: [python, train.py, --lr, "{lr}", --optimizer, "{optimizer}", --seed, "{repeat}"]
tune:
  metric: reward
  mode: max
  samples: 40
  repeats: 2
  space:
    lr: {loguniform: [1e-5, 1e-1]}
    optimizer: {choice: [adam, sgd]}
    momentum: {uniform: [0, 1], when: {optimizer: [sgd]}}
    layers: {randint: [1, 4]}
"""


def sweep(
    home: Path, *, trials: int = 40, repeats: int = 2, kept: bool = False, **names: str
) -> RecordedRun:
    """Build a sweep: every 7th trial was pruned, every 11th failed, the last one still runs.

    With `kept`, Optuna's journal of the sweep is among the results. `names` replace the values of
    the optimizer, adam and sgd.
    """
    text = SWEEP.replace(
        "[adam, sgd]", json.dumps([names.get(name, name) for name in ("adam", "sgd")])
    )
    tune = compose(text, origin="job.yaml").value["tune"]
    run = RecordedRun(home, run="cartpole-20260921-141320-5eeb", tune=tune)
    run.directory.job_file.write_text(text, encoding="utf-8")
    study = _study(run.path / "study.journal") if kept else None
    started(run)
    chance = random.Random(trials)

    for number in range(trials):
        params: dict[str, Any] = {
            "lr": 10 ** chance.uniform(-5, -1),
            "optimizer": chance.choice(("adam", "sgd")),
        }
        params |= {"momentum": chance.random()} if params["optimizer"] == "sgd" else {}
        params["layers"] = chance.randint(1, 4)

        goal = (
            300
            - 40 * (math.log10(params["lr"]) + 3) ** 2
            + 12 * params["layers"]
            + chance.gauss(0, 8)
        )

        params["optimizer"] = names.get(params["optimizer"], params["optimizer"])
        outcome = _trial(run, number, params, goal, repeats=repeats, is_last=number == trials - 1)
        if study is not None and outcome == "complete":
            _tell(study, params, goal)

    return run


def _trial(
    run: RecordedRun, number: int, params: Any, goal: float, *, repeats: int, is_last: bool
) -> str | None:
    began, tasks = 1.0 + 5 * number, [f"trial-{number:04}-{repeat}" for repeat in range(repeats)]
    run.event(began, "trial-started", trial=number, params=params, tasks=tasks)
    outcome = "failed" if number % 11 == 10 else "pruned" if number % 7 == 6 else "complete"
    state = "failed" if outcome == "failed" else "succeeded"
    steps = 8 if outcome == "pruned" else 20
    ends = [goal * (1 - math.exp(-steps / 5)) + 6 * repeat for repeat in range(repeats)]

    for repeat, task in enumerate(tasks):
        values = [goal * (1 - math.exp(-(step + 1) / 5)) + 6 * repeat for step in range(steps)]
        points = [[step, value, BEGAN + began + step / 5] for step, value in enumerate(values)]
        run.event(began + 3.9, "metric", task=task, attempt=1, values=points)

        if is_last:
            run.event(
                began,
                "attempt-started",
                task=task,
                attempt=1,
                node="cpu-0",
                node_id="ab12",
                gpus=[],
            )

            continue

        run.attempt(task, ("cpu-0", "cpu-1")[repeat % 2], began, 4.0, outcome=state)
        run.event(began + 4.0, "task-ended", task=task, state=state, attempts=1)

    if is_last:
        return None

    known: dict[str, Any] = {"value": sum(ends) / repeats, "values": ends, "reason": None}
    known |= {"pruned": {"reason": "below the median at step 7"}}.get(outcome, {})
    known |= {"failed": {"value": None, "values": [None] * repeats, "reason": "exit code 1"}}.get(
        outcome, {}
    )
    run.event(began + 4.1, "trial-ended", trial=number, outcome=outcome, **known)

    return outcome


def _study(journal: Path) -> Any:
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(journal)))
    return optuna.create_study(study_name="cartpole", storage=storage, direction="maximize")


def _tell(study: Any, params: Mapping[str, Any], value: float) -> None:
    import optuna

    space = {
        "lr": optuna.distributions.FloatDistribution(1e-5, 1e-1, log=True),
        "optimizer": optuna.distributions.CategoricalDistribution(["adam", "sgd"]),
        "momentum": optuna.distributions.FloatDistribution(0, 1),
        "layers": optuna.distributions.IntDistribution(1, 4),
    }
    known = {name: space[name] for name in params}
    study.add_trial(
        optuna.trial.create_trial(params=dict(params), distributions=known, value=value)
    )
