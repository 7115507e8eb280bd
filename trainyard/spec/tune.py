"""The section `tune` of a job file: a sweep's space, metric, search and end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from trainyard.spec.fields import Complaint, Duration, Listed, Section, setting
from trainyard.spec.placeholders import MatrixKey, MatrixValue
from trainyard.spec.watch import Watch
from trainyard.wording import did_you_mean

REPEAT = "repeat"
MOST_VALUES = 10_000
# Beyond LARGEST the sum of two numbers of a range is infinite, and the search fails. Beyond
# LARGEST_WHOLE, floats cannot distinguish neighbouring whole numbers.
LARGEST = 1e300
LARGEST_WHOLE = 2**53
KINDS = ("choice", "grid", "uniform", "loguniform", "randint", "lograndint")
_WHOLE = ("randint", "lograndint")
BY_LOGARITHM = ("loguniform", "lograndint")
Values = Listed[MatrixValue]
Search = Literal["tpe", "cmaes", "random", "grid"]


class Parameter(Section):
    """One parameter of a search space."""

    choice: Values | None = setting(None, "One of these values.")
    grid: Values | None = setting(
        None, "Every one of these values, with `search: grid`; else one of them."
    )
    uniform: Listed[float] | None = setting(None, "A number between these two, both included.")
    loguniform: Listed[float] | None = setting(
        None, "A number between these two, chosen by its logarithm."
    )
    randint: Listed[int] | None = setting(None, "A whole number between these two, both included.")
    lograndint: Listed[int] | None = setting(
        None, "A whole number between these two, chosen by its logarithm."
    )
    step: float | None = setting(
        None, "The distance between two possible numbers, for uniform and randint.", gt=0
    )
    when: dict[MatrixKey, Values] = setting(
        {}, "The parameter exists only where these other parameters have one of these values."
    )

    @property
    def kind(self) -> str:
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def values(self) -> list[Any]:
        """Return all possible values.

        Returns [] for a range without steps, or with too many values.
        """
        options = getattr(self, self.kind)
        if self.kind in ("choice", "grid"):
            return list(options)

        low, high = options
        step = self.step
        if self.kind in _WHOLE:
            step = int(self.step or 1)
        if not step or (high - low) / step >= MOST_VALUES:
            return []
        count = math.floor((high - low) / step + 1e-9) + 1
        return [round(low + index * step, 12) for index in range(count)]

    def document(self) -> dict[str, Any]:
        """Return the parameter in the runner's form."""
        return {
            "kind": self.kind,
            "of": list(getattr(self, self.kind)),
            "step": self.step,
            "when": {name: list(values) for name, values in self.when.items()},
            "values": self.values,
        }

    def problems(self) -> Iterator[Complaint]:
        """Require exactly one kind, valid bounds and a valid step."""
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            message = f"must have exactly one of: {', '.join(KINDS)}"
            if given:
                message += f"; has {', '.join(given)}"
            yield Complaint((), message)
            return

        kind = given[0]
        options = list(getattr(self, kind))
        width = math.inf
        if kind in ("choice", "grid"):
            if not options:
                yield Complaint((kind,), "must not be empty")
        else:
            problem = _range_problem(kind, options)
            if problem:
                yield Complaint((kind,), problem, options)
            else:
                width = options[1] - options[0]

        is_whole = self.step is None or self.step.is_integer() or kind != "randint"
        if self.step and (kind not in ("uniform", "randint") or self.step > width or not is_whole):
            message = "is for uniform and (if whole) randint, at most the width of the range"
            yield Complaint(("step",), message, self.step)

    def conditions(self, above: Mapping[str, Values]) -> Iterator[Complaint]:
        """Check `when` against the values of earlier choices and grids."""
        for other, values in self.when.items():
            options = above.get(other, ())
            if not options:
                rule = "; a parameter may depend only on parameters of these kinds"
                meant = did_you_mean(other, above) or rule
                yield Complaint(
                    ("when", other), "is not a choice or grid above it", suggestion=meant
                )
                continue

            for value in values:
                if value not in options:
                    listed = f"; {other} is one of: {', '.join(map(str, options[:9]))}"
                    meant = did_you_mean(str(value), map(str, options)) or listed
                    yield Complaint(("when", other), "is not a possible value", value, meant)


def _range_problem(kind: str, numbers: list[float]) -> str:
    """Return what is wrong with a range, or ""."""
    if len(numbers) != 2 or not numbers[0] < numbers[1] or math.inf in map(abs, numbers):
        return "must be two numbers, the smaller one first"

    largest = max(map(abs, numbers))
    if kind in _WHOLE and largest > LARGEST_WHOLE:
        return f"must be two numbers between -{LARGEST_WHOLE:,} and {LARGEST_WHOLE:,}"
    if kind not in _WHOLE and largest > LARGEST:
        return f"must be two numbers between -{LARGEST:g} and {LARGEST:g}"
    if kind in BY_LOGARITHM and numbers[0] <= 0:
        return "must begin above 0"
    return ""


class Prune(Section):
    """When to give up a configuration worse than others at the same step."""

    by: Literal["median", "percentile", "hyperband"] = setting(
        "median", "Which of Optuna's pruners."
    )
    percentile: float = setting(
        25.0, "For `by: percentile`, the percentage of configurations that is kept.", gt=0, lt=100
    )
    after: int = setting(5, "How many configurations at the beginning are never pruned.", ge=1)
    warmup: int = setting(
        0, "How many values of its metric a configuration has before it may be pruned.", ge=0
    )


class Stop(Section):
    """When to end a sweep before all its configurations were tried."""

    plateau: int | None = setting(
        None, "After this many configurations in a row that are no better than the best.", ge=1
    )
    failures: int | None = setting(
        None, "After this many failed configurations; left out: if the first 20 all fail.", ge=1
    )


class Tune(Watch):
    """A sweep; its metric is described as in `watch`."""

    space: dict[MatrixKey, Parameter] = Field(
        description="The parameters to search; {name} in command and env is replaced."
    )
    mode: Literal["max", "min"] = setting("max", "Whether more of the metric is better, or less.")
    objective: Literal["last", "best"] = setting(
        "last", "Which value of the metric counts for a task."
    )
    samples: int | None = setting(
        None, "How many configurations are tried; grid: default all.", ge=1, le=100_000
    )
    repeats: int = setting(
        1,
        "How many tasks try one configuration, with {repeat} as 0, 1, ...; the mean of their "
        "metrics counts.",
        ge=1,
        le=1000,
    )
    concurrency: int | None = setting(
        None, "Configurations at a time (default: as many as fit).", ge=1
    )
    time: Duration | None = setting(
        None, "How long the sweep may take; tasks that run then are ended."
    )
    search: Search = setting("tpe", "How Optuna chooses the next configuration.")
    seed: int = setting(0, "The seed of the search.", ge=0)
    prune: Prune | None = setting(
        None, "Give up configurations that are worse than others at the same step."
    )
    stop: Stop = setting(Stop(), "When to end before all samples.")

    def complaints(self) -> Iterator[Complaint]:
        """Yield nothing: the job yields `problems` below its key `tune`."""
        yield from ()

    def problems(self) -> Iterator[Complaint]:
        """Check the metric, the space, the search and the end."""
        yield from super().complaints()
        if not self.space:
            yield Complaint(("space",), "must not be empty")

        above: dict[str, Values] = {}
        for name, parameter in self.space.items():
            complaints = [*parameter.problems(), *parameter.conditions(above)]
            if name == REPEAT:
                complaints.append(Complaint((), "is reserved for {repeat}: choose another name"))
            if not complaints and self.search == "grid" and not parameter.values:
                message = "has too many values for search: grid; give grid or choice, or a step"
                complaints.append(Complaint((), message))
            for complaint in complaints:
                yield replace(complaint, path=("space", name, *complaint.path))

            options = parameter.choice or parameter.grid
            if options:
                above[name] = options

        unconditional = [name for name, parameter in self.space.items() if not parameter.when]
        numbers = [name for name in unconditional if name not in above]
        if self.search == "cmaes" and len(numbers) < 2:
            yield Complaint(
                ("search",),
                "cmaes needs at least two numeric parameters without `when`",
                self.search,
            )

        if self.search != "grid" and self.samples is None and self.time is None:
            yield Complaint(
                ("samples",), "is missing: how many configurations are tried (or give time)"
            )

    def document(self) -> dict[str, Any]:
        """Return the sweep in the runner's form."""
        own = type(self).model_fields.keys() - Watch.model_fields.keys() | {"metric"}
        space = {name: parameter.document() for name, parameter in self.space.items()}
        return {**self.model_dump(include=own), "space": space}

    def watch(self) -> dict[str, Any]:
        return self.model_dump(include=set(Watch.model_fields))
