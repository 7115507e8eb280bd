"""How a sweep stands: the events of its trials, folded; in the shape that `--json` prints."""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

TrialState = Literal["running", "complete", "pruned", "failed", "stopped"]
# Of a trial, in a document.
_SHOWN = ("params", "state", "value", "values", "tasks", "reason", "seconds")


@dataclass
class Trial:
    """One configuration: Optuna's number of it, its parameters, and the tasks that try it, one a
    repeat.
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
        """Return the standard deviation over its repeats, if several have a value, and it is a
        number.
        """
        known = [value for value in self.values if value is not None]
        try:
            if len(known) > 1:
                return statistics.stdev(known)
            return None
        except OverflowError:
            return None

    @property
    def seconds(self) -> float | None:
        """Return how long it was tried; one of a former run, which has no tasks in this one, was
        not.
        """
        if not self.tasks or self.started is None or self.ended is None:
            return None
        return max(0.0, self.ended - self.started)


@dataclass
class Sweep:
    """The trials of a run by their number, and how the sweep ended: {reason, samples, best}.

    `tune` is that section of its job file.
    """

    tune: Mapping[str, Any]
    trials: dict[int, Trial] = field(default_factory=dict)
    end: Mapping[str, Any] | None = None

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take in one event of a trial, or the end of the run."""
        match event["event"]:
            case "trial-started":
                number = event["trial"]
                tasks = tuple(event["tasks"])
                self.trials[number] = Trial(number, event["params"], tasks, started=event["time"])
            case "trial-ended":
                trial = self.trials.setdefault(event["trial"], Trial(event["trial"], {}, ()))
                trial.state = event["outcome"]
                trial.ended = event["time"]
                trial.reason = event.get("reason")
                trial.value = _number(event.get("value"))
                trial.values = tuple(_number(value) for value in event.get("values") or ())
            case "run-ended":
                self.end = event.get("sweep")
                for trial in self.trials.values():
                    if trial.state == "running":
                        trial.state = "stopped"
                        trial.ended = event["time"]

    def ranked(self) -> list[Trial]:
        """Return the complete trials, the best first; of equal ones the earlier is better."""
        sign = 1 if self.tune["mode"] == "min" else -1
        known = []
        for trial in list(self.trials.values()):
            if trial.state == "complete":
                known.append((trial.value, trial))
        ranks = [(sign * value, trial.number, trial) for value, trial in known if value is not None]
        return [trial for _, _, trial in sorted(ranks, key=lambda rank: rank[:2])]

    @property
    def best(self) -> Trial | None:
        return next(iter(self.ranked()), None)

    def counts(self) -> dict[str, int]:
        found = Counter[str](trial.state for trial in self.trials.values())
        return {
            state: found[state] for state in ("complete", "pruned", "failed", "running", "stopped")
        }

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints of it, besides what it prints of any run."""
        best = self.best
        return {
            "metric": self.tune["metric"],
            "mode": self.tune["mode"],
            "best": best
            and {"trial": best.number, "value": best.value, "params": dict(best.params)},
            "counts": self.counts(),
            "trials": [
                {"trial": trial.number, **{key: getattr(trial, key) for key in _SHOWN}}
                for trial in self.trials.values()
            ],
            "end": self.end,
        }


def _number(value: object) -> float | None:
    """Return a value that a metric can have; JSON of Python may also hold NaN and infinity."""
    is_number = isinstance(value, (int, float)) and abs(value) <= sys.float_info.max
    return float(value) if is_number else None  # type: ignore[arg-type]
