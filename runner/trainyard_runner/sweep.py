"""A sweep: chooses the next configurations while the run goes, hears how their tasks do, and knows when it is enough.

Knows neither Ray nor Optuna: the scheduler asks it for tasks and for those that should end, `study` asks Optuna.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainyard_runner import nodes as cluster
from trainyard_runner import space
from trainyard_runner.nodes import Node
from trainyard_runner.plan import Plan, task_of
from trainyard_runner.records import AttemptRecord
from trainyard_runner.study import Ended, Study
from trainyard_runner.units import State, Unit

Write = Callable[..., None]
# A sweep is given up when so many configurations fail before any has a value; `stop.failures` says otherwise.
_IN_VAIN = 10


@dataclass
class Trial:
    """A configuration that is being tried, by one task a repeat."""

    number: int
    params: space.Params
    tasks: tuple[str, ...]
    states: dict[str, State] = field(default_factory=dict)
    # By task, by step: what its metric was; a second attempt may write a step again.
    curves: dict[str, dict[float, float]] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)
    compared: int = 0
    verdict: tuple[str, str] | None = None  # outcome and reason, once it is not tried any further


class Sweep:
    """One run's configurations."""

    def __init__(self, plan: Plan, study: Study, write: Write, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Go on with a study. `write` writes an event."""
        if plan.sweep is None:
            raise ValueError("the plan has no sweep")
        self._about: Mapping[str, Any] = plan.sweep
        self._study = study
        self._write = write
        self._clock = clock
        self._began = clock()
        self._template = task_of(0, self._about["task"])
        self._open: dict[int, Trial] = {}
        self._of_task: dict[str, Trial] = {}
        self._tried = self._failed = self._since_best = 0
        self._failures: list[int] = []
        self.best: Ended | None = None
        # Why no more configurations are tried; None while they are.
        self.reason: str | None = None
        # Tasks that should end, each with why.
        self.doomed: dict[str, str] = {}
        for ended in study.ended():
            write("trial-started", trial=ended.number, params=ended.params, tasks=[])
            self._count(ended)
        if self._tried:
            write("note", text=f"goes on with a sweep of which {self._tried} configurations were tried")

    @property
    def is_over(self) -> bool:
        return self.reason is not None and not self._open

    def units(self, nodes: Sequence[Node]) -> list[Unit]:
        """Return the tasks that should be tried now, besides those that are; call it often."""
        limit = self._about["time"]
        if limit is not None and self._clock() - self._began >= limit:
            self._finish(f"its time of {limit:g} s was over", end_open=True)
        started: list[Unit] = []
        while self.reason is None and self._has_room(nodes):
            if self._about["samples"] is not None and self._tried + len(self._open) >= self._about["samples"]:
                self._finish("all samples were tried")
            elif asked := self._study.ask():
                started += self._start(*asked)
            else:
                self._finish("every configuration of its space was tried")
        return started

    def metric(self, record: AttemptRecord, values: Sequence[Sequence[float]]) -> None:
        """Take in what a task's metric was: [step, value, time] each."""
        trial = self._of_task.get(record.task)
        if trial is None or trial.verdict:
            return
        curve = trial.curves.setdefault(record.task, {})
        for step, value, *_ in values:
            curve[step] = trial.last[record.task] = value
        if self._about["prune"]:
            self._compare(trial)

    def ended(self, task: str, state: State, reason: str | None) -> None:
        """Take in that a task has ended for good."""
        trial = self._of_task.pop(task)
        self.doomed.pop(task, None)
        trial.states[task] = state
        if state == "failed":
            self._end(trial, "failed", f"{task}: {reason or 'no reason known'}")
        elif state == "stopped":
            self._end(trial, "stopped", reason or "the run was stopped")
        elif task not in trial.last:
            self._end(trial, "failed", f"{task}: it has written no value of {self._about['metric']}")
        if len(trial.states) == len(trial.tasks):
            self._conclude(trial)

    def result(self) -> dict[str, Any]:
        """Return what the run's last event says of it."""
        best = self.best and {"trial": self.best.number, "value": self.best.value, "params": self.best.params}
        return {"reason": self.reason or "the run was stopped", "samples": self._tried, "best": best}

    def problem(self) -> str | None:
        """Return why the sweep as a whole has failed, if it has."""
        most = self._about["stop"]["failures"]
        if self._failed and (self.best is None or (most is not None and self._failed >= most)):
            return f"{self._failed} of {self._tried} configurations failed"
        return None if self.best else "no configuration was tried to its end"

    def _has_room(self, nodes: Sequence[Node]) -> bool:
        """Say whether another configuration may start; unless the job says how many, while a task of it would run."""
        most: int | None = self._about["concurrency"]
        if most is not None:
            return len(self._open) < most
        return len(self._of_task) < max(1, cluster.slots(self._template, nodes))

    def _start(self, number: int, params: space.Params, continues: int | None) -> list[Unit]:
        repeats = range(self._about["repeats"])
        trial = Trial(number, params, tuple(_task_name(number, repeat) for repeat in repeats))
        self._open[number] = trial
        self._write("trial-started", trial=number, params=params, tasks=list(trial.tasks))
        units = []
        for repeat, name in zip(repeats, trial.tasks, strict=True):
            values = {**params, "repeat": repeat}
            raw = space.filled(self._about["task"], values, self._about["space"])
            former = None if continues is None else _task_name(continues, repeat)
            units.append(Unit((task_of(repeat, {**raw, "name": name, "continues": former}),)))
            self._of_task[name] = trial
        return units

    def _compare(self, trial: Trial) -> None:
        """Report the mean of the repeats wherever all of them have a value; give the trial up if Optuna says so."""
        curves = [list(trial.curves.get(task, {}).values()) for task in trial.tasks]
        for step in range(trial.compared, min(map(len, curves))):
            trial.compared = step + 1
            mean = statistics.fmean(curve[step] for curve in curves)
            if self._study.is_worse(trial.number, step, mean):
                by = self._about["prune"]["by"]
                self._end(trial, "pruned", f"worse than others after {step + 1} values ({by})")
                return

    def _end(self, trial: Trial, outcome: str, reason: str) -> None:
        """End a trial with the rest of its tasks, unless that was said before."""
        if trial.verdict is None:
            trial.verdict = outcome, reason
            self.doomed |= {task: f"trial {trial.number}: {reason}" for task in trial.tasks if task in self._of_task}

    def _conclude(self, trial: Trial) -> None:
        del self._open[trial.number]
        outcome, reason = trial.verdict or ("complete", None)
        values = [self._objective(trial, task) for task in trial.tasks]
        known = [value for value in values if value is not None]
        value = statistics.fmean(known) if known and outcome in ("complete", "pruned") else None
        ended = Ended(trial.number, trial.params, outcome, value, values, reason)
        if outcome != "stopped":
            # What was stopped stays open in the study: `tune.resume` tries it again.
            self._study.tell(ended)
        self._count(ended)
        if outcome == "failed":
            self._give_up_in_vain(trial)

    def _give_up_in_vain(self, failed: Trial) -> None:
        """End a sweep whose first configurations in this run have all failed; those that still run may be better."""
        self._failures.append(failed.number)
        first = [number for number in self._failures if number < min(self._open, default=math.inf)]
        has_values = self.best is not None or any(trial.last for trial in self._open.values())
        by_default = self._about["stop"]["failures"] is None and self.reason is None
        if by_default and len(first) >= _IN_VAIN and not has_values:
            self._finish(f"the first {len(first)} configurations failed", end_open=True)

    def _objective(self, trial: Trial, task: str) -> float | None:
        if self._about["objective"] == "last" or task not in trial.last:
            return trial.last.get(task)
        return (max if self._about["mode"] == "max" else min)(trial.curves[task].values())

    def _count(self, ended: Ended) -> None:
        """Write how a configuration ended; see whether it is the best, and whether that is enough."""
        fields = {key: getattr(ended, key) for key in ("outcome", "value", "values", "reason")}
        self._write("trial-ended", trial=ended.number, **fields)
        if ended.outcome == "stopped":
            return
        self._tried += 1
        self._failed += ended.outcome == "failed"
        sign = 1 if self._about["mode"] == "max" else -1
        best = -math.inf if self.best is None or self.best.value is None else sign * self.best.value
        is_best = ended.outcome == "complete" and ended.value is not None and sign * ended.value > best
        self.best, self._since_best = (ended, 0) if is_best else (self.best, self._since_best + 1)
        stop = self._about["stop"]
        if stop["failures"] is not None and self._failed >= stop["failures"]:
            self._finish(f"{self._failed} configurations failed", end_open=True)
        elif stop["plateau"] is not None and self.best is not None and self._since_best >= stop["plateau"]:
            self._finish(f"{self._since_best} configurations in a row were no better")

    def _finish(self, reason: str, *, end_open: bool = False) -> None:
        self.reason = self.reason or reason
        for trial in self._open.values() if end_open else ():
            self._end(trial, "stopped", reason)


def _task_name(trial: int, repeat: int) -> str:
    return f"trial-{trial:04d}-{repeat}"
