"""A sweep, in the job file: what is searched, by what a configuration is judged, how, and when it is enough."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from trainyard.spec.fields import Complaint, Duration, Listed, Section, rule, setting
from trainyard.spec.placeholders import MatrixKey, MatrixValue
from trainyard.spec.watch import Watch
from trainyard.wording import did_you_mean

REPEAT = "repeat"
MOST_VALUES = 10_000
KINDS = ("choice", "grid", "uniform", "loguniform", "randint")
Values = Listed[MatrixValue]
Search = Literal["tpe", "cmaes", "random", "grid"]


class Parameter(Section):
    """One parameter of a search space."""

    choice: Values | None = setting(None, "One of these values.")
    grid: Values | None = setting(None, "Every one of these values, with `search: grid`; else one of them.")
    uniform: Listed[float] | None = setting(None, "A number between two, both included.")
    loguniform: Listed[float] | None = setting(None, "The same, by its logarithm.")
    randint: Listed[int] | None = setting(None, "A whole number between two, both included.")
    step: float | None = setting(None, "uniform, randint: only numbers so far apart.", gt=0)
    when: dict[MatrixKey, Values] = setting({}, "Only where other parameters have one of these values.")

    @property
    def kind(self) -> str:
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def count(self) -> float:
        """How many values it can have."""
        of = getattr(self, self.kind)
        if self.kind in ("choice", "grid"):
            return len(of)
        step = self.step or (1 if self.kind == "randint" else None)
        return math.floor((of[1] - of[0]) / step + 1e-9) + 1 if step else math.inf

    def document(self, *, counted: bool) -> dict[str, Any]:
        """Return what the runner needs to know; its values one by one if they are `counted`."""
        of: Sequence[Any] = getattr(self, self.kind)
        values = list(of)
        if counted and self.kind not in ("choice", "grid"):
            step = int(self.step or 1) if self.kind == "randint" else self.step or 0.0
            values = [round(of[0] + index * step, 12) for index in range(int(self.count))]
        when = {name: list(known) for name, known in self.when.items()}
        return {"kind": self.kind, "of": list(of), "step": self.step, "when": when, "values": values}

    def complaints(self) -> Iterator[Complaint]:
        """Complain about a parameter that is not of exactly one kind, and about borders that are none."""
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            has = f"; has {', '.join(given)}" if given else ""
            yield Complaint((), f"must have exactly one of: {', '.join(KINDS)}{has}")
            return
        kind, value = given[0], getattr(self, given[0])
        if kind in ("choice", "grid"):
            if not value:
                yield Complaint((kind,), "must not be empty")
            elif len(set(map(repr, value))) < len(value):
                yield Complaint((kind,), "has a value twice")
        elif len(value) == 2 and value[0] == value[1]:
            yield Complaint((kind,), "must be two numbers that differ", list(value))
        elif len(value) != 2 or not value[0] < value[1] or not all(map(math.isfinite, value)):
            yield Complaint((kind,), "must be two numbers, the smaller one first", list(value))
        elif kind == "loguniform" and value[0] <= 0:
            yield Complaint((kind,), "must begin above 0", list(value))
        if self.step and kind not in ("uniform", "randint"):
            yield Complaint(("step",), "is for uniform and randint")
        elif self.step and kind == "randint" and not self.step.is_integer():
            yield Complaint(("step",), "must be a whole number", self.step)
        elif self.step and len(value) == 2 and value[0] < value[1] < value[0] + self.step:
            yield Complaint(("step",), f"must be at most {value[1] - value[0]:g}, the width of its range", self.step)


def _space_complaints(space: Mapping[str, Parameter]) -> Iterator[Complaint]:
    if not space:
        yield Complaint((), "must not be empty")
    before: dict[str, Parameter] = {}
    for name, parameter in space.items():
        if name == REPEAT:
            yield Complaint((name,), "is what {repeat} stands for: take another name")
        for other, values in parameter.when.items():
            if other not in before:
                meant = did_you_mean(other, before) or "; a parameter depends on those that are above it"
                yield Complaint((name, "when", other), "is no parameter above this one", suggestion=meant)
                continue
            known = before[other].choice or before[other].grid or ()
            if not known:
                yield Complaint((name, "when", other), "is not of kind choice or grid: others cannot depend on it")
            for value in values if known else ():
                if value not in known:
                    listed = f"; {other} is one of: {', '.join(map(str, known[:9]))}"
                    meant = did_you_mean(str(value), map(str, known)) or listed
                    yield Complaint((name, "when", other), "is never the case", value, meant)
        before[name] = parameter


Space = Annotated[dict[MatrixKey, Parameter], rule(_space_complaints)]


class Prune(Section):
    """When a configuration is given up before its end: compared with others at the same step."""

    by: Literal["median", "percentile", "hyperband"] = setting("median", "Which of Optuna's pruners.")
    percentile: float = setting(25.0, "With percentile: keep the best so many in a hundred.", gt=0, lt=100)
    after: int = setting(5, "Configurations that are never pruned: the first ones.", ge=1)
    warmup: int = setting(0, "Values of the metric before which none is pruned.", ge=0)


class Stop(Section):
    """When a sweep ends before all its configurations were tried."""

    plateau: int | None = setting(None, "So many configurations in a row were no better than the best.", ge=1)
    failures: int | None = setting(None, "So many configurations failed (default: the first 10).", ge=1)


class Tune(Watch):
    """A sweep; what its metric is and where it is read, as in `watch`."""

    space: Space = Field(description="What is searched; {name} in command and env is replaced.")
    mode: Literal["max", "min"] = setting("max", "Whether more of the metric is better, or less.")
    objective: Literal["last", "best"] = setting("last", "Which value of the metric counts for a task.")
    samples: int | None = setting(None, "How many configurations are tried; grid: default all.", ge=1, le=100_000)
    repeats: int = setting(1, "Tasks of a configuration, {repeat} being 0, 1, ...; their mean counts.", ge=1, le=1000)
    concurrency: int | None = setting(None, "Configurations at a time (default: as many as fit).", ge=1)
    time: Duration | None = setting(None, "How long the sweep may take; what runs then is ended.")
    search: Search = setting("tpe", "By what Optuna chooses the next configuration.")
    seed: int = setting(0, "Of the search.", ge=0)
    prune: Prune | None = setting(None, "Give up configurations that are worse than others at the same step.")
    stop: Stop = setting(Stop(), "When to end before all samples.")

    def complaints(self) -> Iterator[Complaint]:
        """Complain about a search that cannot search this space, and about one without an end."""
        yield from super().complaints()
        if self.search == "grid":
            for name, parameter in self.space.items():
                if parameter.count > MOST_VALUES:
                    meant = "; give grid or choice, or a step"
                    yield Complaint(("space", name), "has too many values for search: grid", suggestion=meant)
        elif self.samples is None and self.time is None:
            yield Complaint(("samples",), "is missing: how many configurations are tried (or give time)")
        numbers = [each for each in self.space.values() if each.kind not in ("choice", "grid") and not each.when]
        if self.search == "cmaes" and len(numbers) < 2:
            yield Complaint(("search",), "cmaes needs two numbers at least that every configuration has", self.search)

    def document(self) -> dict[str, Any]:
        """Return what the runner needs to know of it, besides where the metric is."""
        counted = self.search == "grid"
        own = type(self).model_fields.keys() - Watch.model_fields.keys() | {"metric"}
        space = {name: parameter.document(counted=counted) for name, parameter in self.space.items()}
        return {**self.model_dump(include=own), "space": space}

    def watch(self) -> dict[str, Any]:
        """Return how each task is watched."""
        return self.model_dump(include=set(Watch.model_fields))


def left_out(space: Mapping[str, Parameter], command: Sequence[str]) -> Iterator[Complaint]:
    """Complain about a flag that stays although its value, a parameter with `when`, is left out with its word."""
    for index in range(1, len(command)):
        name, flag = command[index][1:-1], command[index - 1]
        if command[index] == f"{{{name}}}" and name in space and space[name].when and flag.startswith("-"):
            meant = f"; write {flag}={{{name}}} as one word"
            yield Complaint(
                ("command", index), f"is left out where there is no {name}, and {flag} stays", suggestion=meant
            )
