"""A sweep, in the job file: what is searched, by what a configuration is judged, how, and when it
is enough.
"""

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
# Beyond, sums of two numbers of a range are infinite, and the search fails; whole numbers are no
# longer told apart.
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
    uniform: Listed[float] | None = setting(None, "A number between two, both included.")
    loguniform: Listed[float] | None = setting(None, "The same, by its logarithm.")
    randint: Listed[int] | None = setting(None, "A whole number between two, both included.")
    lograndint: Listed[int] | None = setting(None, "The same, by its logarithm.")
    step: float | None = setting(None, "uniform, randint: only numbers so far apart.", gt=0)
    when: dict[MatrixKey, Values] = setting(
        {}, "Only where other parameters have one of these values."
    )

    @property
    def kind(self) -> str:
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def values(self) -> list[Any]:
        """Return all values that it can have; none of one that can have any, or more than a grid
        has.
        """
        of = getattr(self, self.kind)
        if self.kind in ("choice", "grid"):
            return list(of)
        step = int(self.step or 1) if self.kind in _WHOLE else self.step
        if not step or (of[1] - of[0]) / step >= MOST_VALUES:
            return []
        count = math.floor((of[1] - of[0]) / step + 1e-9) + 1
        return [round(of[0] + index * step, 12) for index in range(count)]

    def document(self) -> dict[str, Any]:
        """Return what the runner needs to know."""
        known = {"kind": self.kind, "of": list(getattr(self, self.kind)), "step": self.step}
        when = {name: list(values) for name, values in self.when.items()}
        return {**known, "when": when, "values": self.values}

    def problems(self) -> Iterator[Complaint]:
        """Complain about a parameter that is not of exactly one kind, and about borders that are
        none.
        """
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            has = f"; has {', '.join(given)}" if given else ""
            yield Complaint((), f"must have exactly one of: {', '.join(KINDS)}{has}")
            return

        kind = given[0]
        of = list(getattr(self, given[0]))
        width = math.inf

        if kind in ("choice", "grid"):
            if not of:
                yield Complaint((kind,), "must not be empty")
        elif len(of) != 2 or not of[0] < of[1] or math.inf in map(abs, of):
            yield Complaint((kind,), "must be two numbers, the smaller one first", of)
        elif max(map(abs, of)) > (LARGEST_WHOLE if kind in _WHOLE else LARGEST):
            if kind in _WHOLE:
                most = f"{LARGEST_WHOLE:,}"
            else:
                most = f"{LARGEST:g}"
            yield Complaint((kind,), f"must be two numbers between -{most} and {most}", of)
        elif kind in BY_LOGARITHM and of[0] <= 0:
            yield Complaint((kind,), "must begin above 0", of)
        else:
            width = of[1] - of[0]

        is_whole = self.step is None or self.step.is_integer() or kind != "randint"
        if self.step and (kind not in ("uniform", "randint") or self.step > width or not is_whole):
            what = "is for uniform, and whole for randint: at most the width of the range"
            yield Complaint(("step",), what, self.step)

    def conditions(self, above: Mapping[str, Values]) -> Iterator[Complaint]:
        """Complain about a `when` that is never so: it names choices `above`, which have these
        options.
        """
        for other, values in self.when.items():
            options = above.get(other, ())
            if not options:
                meant = (
                    did_you_mean(other, above)
                    or "; a parameter depends on those of kind choice or grid above it"
                )
                yield Complaint(("when", other), "is no choice above this one", suggestion=meant)
            for value in values if options else ():
                if value not in options:
                    listed = f"; {other} is one of: {', '.join(map(str, options[:9]))}"
                    meant = did_you_mean(str(value), map(str, options)) or listed
                    yield Complaint(("when", other), "is never the case", value, meant)


class Prune(Section):
    """When a configuration is given up before its end: compared with others at the same step."""

    by: Literal["median", "percentile", "hyperband"] = setting(
        "median", "Which of Optuna's pruners."
    )
    percentile: float = setting(
        25.0, "With percentile: keep the best so many in a hundred.", gt=0, lt=100
    )
    after: int = setting(5, "Configurations that are never pruned: the first ones.", ge=1)
    warmup: int = setting(0, "Values of the metric before which none is pruned.", ge=0)


class Stop(Section):
    """When a sweep ends before all its configurations were tried."""

    plateau: int | None = setting(
        None, "So many configurations in a row were no better than the best.", ge=1
    )
    failures: int | None = setting(
        None, "So many configurations failed (default: each of the first 20).", ge=1
    )


class Tune(Watch):
    """A sweep; what its metric is and where it is read, as in `watch`."""

    space: dict[MatrixKey, Parameter] = Field(
        description="What is searched; {name} in command and env is replaced."
    )
    mode: Literal["max", "min"] = setting("max", "Whether more of the metric is better, or less.")
    objective: Literal["last", "best"] = setting(
        "last", "Which value of the metric counts for a task."
    )
    samples: int | None = setting(
        None, "How many configurations are tried; grid: default all.", ge=1, le=100_000
    )
    repeats: int = setting(
        1, "Tasks of a configuration, {repeat} being 0, 1, ...; their mean counts.", ge=1, le=1000
    )
    concurrency: int | None = setting(
        None, "Configurations at a time (default: as many as fit).", ge=1
    )
    time: Duration | None = setting(None, "How long the sweep may take; what runs then is ended.")
    search: Search = setting("tpe", "By what Optuna chooses the next configuration.")
    seed: int = setting(0, "Of the search.", ge=0)
    prune: Prune | None = setting(
        None, "Give up configurations that are worse than others at the same step."
    )
    stop: Stop = setting(Stop(), "When to end before all samples.")

    def complaints(self) -> Iterator[Complaint]:
        """Leave `problems` to the job, which has them in one list with its own."""
        yield from ()

    def problems(self) -> Iterator[Complaint]:
        """Complain about a space, about a search that cannot search it, and about one without an
        end.
        """
        yield from super().complaints()
        if not self.space:
            yield Complaint(("space",), "must not be empty")

        above: dict[str, Values] = {}
        for name, parameter in self.space.items():
            found = [*parameter.problems(), *parameter.conditions(above)]
            if name == REPEAT:
                found.append(Complaint((), "is what {repeat} stands for: take another name"))

            if not found and self.search == "grid" and not parameter.values:
                found.append(
                    Complaint(
                        (), "has too many values for search: grid; give grid or choice, or a step"
                    )
                )

            for each in found:
                yield replace(each, path=("space", name, *each.path))

            if options := parameter.choice or parameter.grid:
                above[name] = options

        numbers = [
            name
            for name, parameter in self.space.items()
            if name not in above and not parameter.when
        ]
        if self.search == "cmaes" and len(numbers) < 2:
            yield Complaint(
                ("search",),
                "cmaes needs two numbers at least that every configuration has",
                self.search,
            )

        if self.search != "grid" and self.samples is None and self.time is None:
            yield Complaint(
                ("samples",), "is missing: how many configurations are tried (or give time)"
            )

    def document(self) -> dict[str, Any]:
        """Return what the runner needs to know of it, besides where the metric is."""
        own = type(self).model_fields.keys() - Watch.model_fields.keys() | {"metric"}
        space = {name: parameter.document() for name, parameter in self.space.items()}
        return {**self.model_dump(include=own), "space": space}

    def watch(self) -> dict[str, Any]:
        """Return how each task is watched."""
        return self.model_dump(include=set(Watch.model_fields))
