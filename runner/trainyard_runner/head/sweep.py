"""A sweep: chooses configurations, prunes bad ones, decides when to finish.

This module uses neither Ray nor Optuna: the scheduler starts and stops the
sweep's tasks, and `study.py` asks Optuna.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainyard_runner.head.records import AttemptRecord
from trainyard_runner.head.study import Configuration, Reached, Result, Study
from trainyard_runner.head.units import Unit
from trainyard_runner.wire import nodes as cluster
from trainyard_runner.wire import space
from trainyard_runner.wire.events import Event, TrialEnded, TrialOutcome, TrialStarted
from trainyard_runner.wire.nodes import Node
from trainyard_runner.wire.outcome import State
from trainyard_runner.wire.plan import task_of

# A sweep ends if this many configurations failed and none succeeded: otherwise, a sweep with only a
# time limit would start failing configurations until that limit.
FIRST_FAILURES = 20


@dataclass
class Trial:
    """A configuration that is being tried, by one task for each repeat."""

    number: int
    params: space.Params
    tasks: tuple[str, ...]
    # For each task, the metric's values by step, in the order in which the task wrote them. If a
    # retry writes a step again, the step moves to the end, with its new value.
    curves: dict[str, dict[float, float]] = field(default_factory=dict)
    # The state that the tasks had in a former run, if the trial continues a trial of that run.
    former: dict[str, Reached] = field(default_factory=dict)
    # The tasks that succeeded, in this run or in the former one.
    finished: set[str] = field(default_factory=set)
    # How many values of the curves the pruner has seen.
    compared: int = 0
    # "complete" unless the trial failed, was pruned or was stopped; then `reason` says why.
    outcome: TrialOutcome = "complete"
    reason: str | None = None


class Sweep:
    """The configurations that a run tries."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        study: Study,
        write: Callable[[Event], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Count a former run's results in the study, and write their events.

        `spec` is the plan's `sweep`.
        """
        self._spec = spec
        self._study = study
        self._write = write
        self._clock = clock
        self._began = clock()
        self._better: Any = max if self._spec["mode"] == "max" else min
        self._template = task_of(self._spec["task"])
        self._open: dict[int, Trial] = {}
        self._of_task: dict[str, Trial] = {}
        self._tried = 0
        self._failed = 0
        self._since_best = 0
        self.best: Result | None = None
        # Why the sweep has stopped starting configurations; None before that.
        self.reason: str | None = None
        # The tasks that the scheduler should stop, each with the reason.
        self.to_stop: dict[str, str] = {}

        for result in study.results():
            write(TrialStarted(result.trial, result.params, tasks=[]))
            self._count(result)

    @property
    def is_over(self) -> bool:
        """Return whether all trials have ended and no more are started."""
        return self.reason is not None and not self._open

    def next_units(self, nodes: Sequence[Node]) -> list[Unit]:
        """Open new trials while `_may_open` allows more; return their units.

        Finishes the sweep at its limit of time or samples, if its space is used
        up, or if the search finds no new configuration. The time limit stops
        running trials, too.
        """
        limit = self._spec["time"]
        samples = self._spec["samples"]
        if limit is not None and self._clock() - self._began >= limit:
            self._finish(f"the time limit of {limit:g} s was reached", stop=True)

        started: list[Unit] = []
        while self.reason is None and self._may_open(nodes):
            if samples is not None and self._tried + len(self._open) >= samples:
                self._finish("all samples were tried")
            elif configuration := self._study.ask():
                started += self._start(configuration)
            elif self._study.is_used_up:
                self._finish("every configuration of the space was tried")
            else:
                self._finish("the search proposed only configurations that were tried already")

        return started

    def metric(self, record: AttemptRecord, values: Sequence[Sequence[float]]) -> None:
        """Add a task's values to its trial; prune the trial if Optuna says so.

        `values` are [step, value, time] each.
        """
        trial = self._of_task.get(record.task)
        # The values of a stopped trial count when a later run continues it.
        if trial is None or trial.outcome not in ("complete", "stopped"):
            return
        curve = trial.curves.setdefault(record.task, {})
        for step, value, *_ in values:
            curve.pop(step, None)
            curve[step] = value

        if self._spec["prune"] and trial.outcome == "complete":
            self._compare(trial)

    def ended(self, task: str, state: State, reason: str | None) -> None:
        """Record that a task has ended for good.

        The trial's last task concludes the trial. A task that did not succeed,
        or has no value of the metric, stops the other tasks of its trial.
        """
        trial = self._of_task.pop(task)
        self.to_stop.pop(task, None)
        if state != "succeeded":
            why = reason or "the run was stopped"
            self._stop(trial, state, f"{task}: {why}")
        elif self._point(trial, task) is None:
            metric = self._spec["metric"]
            self._stop(trial, "failed", f"{task}: the task wrote no value of {metric}")
        else:
            trial.finished.add(task)

        if not self._of_task.keys() & trial.tasks:
            self._conclude(trial)
        elif task in trial.finished:
            self._keep(trial)

    def result(self) -> dict[str, Any]:
        """Return the field `sweep` of the run's last event."""
        best = None
        if self.best is not None:
            best = {
                "trial": self.best.trial,
                "value": self.best.value,
                "params": self.best.params,
            }
        reason = self.reason or "the run was stopped"
        return {"reason": reason, "samples": self._tried, "best": best}

    def problem(self) -> str | None:
        """Return why the sweep as a whole has failed, or None."""
        limit = self._spec["stop"]["failures"]
        has_reached_limit = limit is not None and self._failed >= limit
        if self._failed and (self.best is None or has_reached_limit):
            return f"{self._failed} of {self._tried} configurations failed"
        if self.best:
            return None
        return "no configuration was completed"

    def _may_open(self, nodes: Sequence[Node]) -> bool:
        """Return whether another configuration may start.

        The job's `concurrency` limits open configurations. Without
        `concurrency`, as many tasks may be open as fit on the nodes, but at
        least one.
        """
        limit: int | None = self._spec["concurrency"]
        if limit is not None:
            return len(self._open) < limit
        return len(self._of_task) < max(1, cluster.slots(self._template, nodes))

    def _start(self, configuration: Configuration) -> list[Unit]:
        """Open a trial; return the units of repeats that are not finished.

        If a former run has finished them all, the trial is concluded at once.
        """
        trial = _trial(configuration, repeats=self._spec["repeats"])
        self._open[trial.number] = trial
        missing = [task for task in trial.tasks if task not in trial.finished]
        self._write(TrialStarted(trial.number, trial.params, missing))

        units = []
        for repeat, name in enumerate(trial.tasks):
            if name in trial.finished:
                continue
            former = None
            if configuration.continues is not None:
                former = _task_name(configuration.continues, repeat)
            values = {**trial.params, "repeat": repeat}
            raw = space.filled(self._spec["task"], values, self._spec["space"])
            task = task_of({**raw, "index": repeat, "name": name, "continues": former})
            units.append(Unit((task,)))
            self._of_task[name] = trial

        if not units:
            self._conclude(trial)
        return units

    def _compare(self, trial: Trial) -> None:
        """Report each value's mean over repeats; prune if Optuna says so.

        The n-th values of all repeats are averaged, even if their steps differ.
        A trial with a repeat that a former run finished is not pruned.
        `statistics.mean` is exact; the sum of two very large floats would be
        infinite.
        """
        curves = [list(trial.curves.get(task, {}).values()) for task in trial.tasks]
        for step in range(trial.compared, min(map(len, curves))):
            trial.compared = step + 1
            mean = statistics.mean(curve[step] for curve in curves)
            if self._study.should_prune(trial.number, step, mean):
                pruner = self._spec["prune"]["by"]
                reason = f"worse than others at value {step + 1} ({pruner})"
                self._stop(trial, "pruned", reason)
                return

    def _stop(self, trial: Trial, outcome: TrialOutcome, reason: str) -> None:
        """Set the outcome of a trial without one, and stop its open tasks."""
        if trial.outcome != "complete":
            return
        trial.outcome = outcome
        trial.reason = reason
        for task in trial.tasks:
            if task in self._of_task:
                self.to_stop[task] = f"trial {trial.number}: {reason}"

    def _conclude(self, trial: Trial) -> None:
        del self._open[trial.number]
        values = [self._objective(trial, task) for task in trial.tasks]
        known = [value for value in values if value is not None]
        value = None
        if known and trial.outcome in ("complete", "pruned"):
            value = statistics.mean(known)
        result = Result(trial.number, trial.params, trial.outcome, value, values, trial.reason)
        if result.outcome == "stopped":
            # A stopped trial stays running in Optuna, so that `tune.resume` continues it.
            self._keep(trial)
        else:
            self._study.tell(result)
        self._count(result)

    def _keep(self, trial: Trial) -> None:
        """Record the state of the tasks, for a run that continues this one."""
        reached = {}
        for repeat, task in enumerate(trial.tasks):
            point = self._point(trial, task)
            if point is not None:
                reached[repeat] = Reached(*point, is_finished=task in trial.finished)
        self._study.keep(trial.number, reached)

    def _objective(self, trial: Trial, task: str) -> float | None:
        point = self._point(trial, task)
        return None if point is None else point[1]

    def _point(self, trial: Trial, task: str) -> tuple[float, float] | None:
        """Return the step and the value that are a task's objective."""
        curve = trial.curves.get(task, {})
        points = list(curve.items())
        former = trial.former.get(task)
        # If the task begins from an older checkpoint, it may write the former step again.
        if former is not None and former.step not in curve:
            points.insert(0, (former.step, former.value))

        if self._spec["objective"] == "best":
            best: tuple[float, float] | None = self._better(
                points, key=lambda point: point[1], default=None
            )
            return best
        return next(reversed(points), None)

    def _count(self, result: Result) -> None:
        """Write and count how a configuration ended; maybe finish the sweep.

        Too many failures or a plateau finish the sweep. A stopped configuration
        is written but does not count.
        """
        self._write(
            TrialEnded(result.trial, result.outcome, result.value, result.values, result.reason)
        )
        if result.outcome == "stopped":
            return

        self._tried += 1
        self._failed += result.outcome == "failed"
        if self._is_best(result):
            self.best = result
            self._since_best = 0
        else:
            self._since_best += 1

        limit = self._spec["stop"]["failures"]
        if not limit and self._failed == self._tried:
            limit = FIRST_FAILURES
        plateau = self._spec["stop"]["plateau"]
        if limit and self._failed >= limit:
            self._finish(f"{self._failed} configurations failed", stop=True)
        elif plateau is not None and self.best is not None and self._since_best >= plateau:
            self._finish(f"{self._since_best} configurations in a row were no better")

    def _is_best(self, result: Result) -> bool:
        if result.outcome != "complete":
            return False
        if self.best is None:
            return True
        return bool(self._better(self.best.value, result.value) != self.best.value)

    def _finish(self, reason: str, *, stop: bool = False) -> None:
        self.reason = self.reason or reason
        if stop:
            for trial in self._open.values():
                self._stop(trial, "stopped", reason)


def _trial(configuration: Configuration, *, repeats: int) -> Trial:
    number = configuration.trial
    tasks = tuple(_task_name(number, repeat) for repeat in range(repeats))
    former = {tasks[repeat]: reached for repeat, reached in configuration.reached.items()}
    finished = {task for task, reached in former.items() if reached.is_finished}
    return Trial(number, configuration.params, tasks, former=former, finished=finished)


def _task_name(trial: int, repeat: int) -> str:
    return f"trial-{trial:04d}-{repeat}"
