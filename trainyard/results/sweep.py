"""The state of a sweep and its trials, computed from the run's events."""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trainyard_runner.wire.events import RunEnded, TrialEnded, TrialStarted

TrialState = Literal["running", "complete", "pruned", "failed", "stopped"]
# The fields of a trial in a document.
_SHOWN = ("params", "state", "value", "values", "tasks", "reason", "seconds")


@dataclass
class Trial:
    """A configuration: its number in Optuna, and one task for each repeat.

    `tasks` lacks the repeats that a former run finished.
    """

    number: int
    params: Mapping[str, Any]
    tasks: tuple[str, ...]
    started: float | None = None
    ended: float | None = None
    state: TrialState = "running"
    value: float | None = None  # the mean over its repeats
    values: tuple[float | None, ...] = ()  # of each repeat
    reason: str | None = None

    @property
    def spread(self) -> float | None:
        """Return the standard deviation over repeats."""
        known = [value for value in self.values if value is not None]
        if len(known) < 2:
            return None
        try:
            return statistics.stdev(known)
        except OverflowError:
            return None

    @property
    def seconds(self) -> float | None:
        """Return the duration of a trial that began and ended in this run."""
        if not self.tasks or self.started is None or self.ended is None:
            return None
        return max(0.0, self.ended - self.started)


@dataclass
class Sweep:
    """A run's trials by number, and the sweep's end.

    `end` has the keys reason, samples and best. `tune` is the section `tune` of
    the job file.
    """

    tune: Mapping[str, Any]
    trials: dict[int, Trial] = field(default_factory=dict)
    end: Mapping[str, Any] | None = None

    def apply(self, event: TrialStarted | TrialEnded | RunEnded) -> None:
        """Update the state with one event."""
        match event:
            case TrialStarted():
                tasks = tuple(event.tasks)
                self.trials[event.trial] = Trial(
                    event.trial, event.params, tasks, started=event.time
                )
            case TrialEnded():
                trial = self.trials.setdefault(event.trial, Trial(event.trial, {}, ()))
                trial.state = event.outcome
                trial.ended = event.time
                trial.reason = event.reason
                trial.value = _number(event.value)
                trial.values = tuple(_number(value) for value in event.values)
            case RunEnded():
                self.end = event.sweep
                for trial in self.trials.values():
                    if trial.state == "running":
                        trial.state = "stopped"
                        trial.ended = event.time

    def ranked(self) -> list[Trial]:
        """Return the complete trials, best first, equal ones by number."""
        sign = 1 if self.tune["mode"] == "min" else -1
        ranks = []
        for trial in list(self.trials.values()):
            if trial.state == "complete" and trial.value is not None:
                ranks.append((sign * trial.value, trial.number, trial))
        ranks.sort(key=lambda rank: rank[:2])
        return [trial for _, _, trial in ranks]

    @property
    def best(self) -> Trial | None:
        return next(iter(self.ranked()), None)

    def counts(self) -> dict[str, int]:
        counts = Counter[str](trial.state for trial in self.trials.values())
        states = ("complete", "pruned", "failed", "running", "stopped")
        return {state: counts[state] for state in states}

    def document(self) -> dict[str, Any]:
        """Return the sweep's part of a run's `--json`."""
        best = None
        first = self.best
        if first:
            best = {"trial": first.number, "value": first.value, "params": dict(first.params)}

        trials = []
        for trial in self.trials.values():
            fields = {key: getattr(trial, key) for key in _SHOWN}
            trials.append({"trial": trial.number, **fields})

        return {
            "metric": self.tune["metric"],
            "mode": self.tune["mode"],
            "best": best,
            "counts": self.counts(),
            "trials": trials,
            "end": self.end,
        }


def _number(value: object) -> float | None:
    """Return a finite number as float; None for others, such as NaN."""
    if isinstance(value, (int, float)) and abs(value) <= sys.float_info.max:
        return float(value)
    return None
