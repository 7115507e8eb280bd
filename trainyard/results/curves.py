"""The learning curves of a run's tasks, as the page draws them, told apart by what the job file gave each task."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainyard.results.scalars import Curve, read_directory
from trainyard.results.store import RunDirectory
from trainyard.spec.job_values import scalar_text
from trainyard.spec.yaml_source import UnreadableError, compose
from trainyard.wording import clean

MOST_SERIES = 150
_MOST_TAGS = 40
_POINTS_OF_ONE = 400
_POINTS_OF_ALL = 200_000

# What a reader most likely wants to see first, the best first.
_PREFERRED = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\beval\w*/.*(return|reward|score|success)",
        r"rollout/(ep_rew_mean|return)",
        r"(episode|ep|mean|total).*(return|reward)",
        r"return|reward|score|success|accuracy",
        r"loss",
    )
]


@dataclass(frozen=True)
class JobFile:
    """A job file as resolved, and what each task got of its matrix."""

    content: Mapping[str, object] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    parameters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def values(self) -> dict[str, str]:
        """Return every single value under its dotted path; lists of single values are one."""
        return dict(_flattened(self.content, ""))


@dataclass(frozen=True)
class Series:
    """What one task wrote into one directory: curves by tag. `directory` is that one, below its outputs."""

    task: str
    directory: str
    parameters: Mapping[str, str]
    curves: dict[str, Curve]

    @property
    def name(self) -> str:
        known = [*self.parameters.values()] if "run" in self.parameters else [self.task]
        return " · ".join([*known, self.directory] if self.directory else known)


@dataclass(frozen=True)
class Curves:
    """All curves of a page, and what had to be left out."""

    series: tuple[Series, ...]
    tags: tuple[str, ...]
    tasks_left_out: int
    tags_left_out: int

    @property
    def telling(self) -> list[str]:
        ranks = {tag: [bool(pattern.search(tag)) for pattern in _PREFERRED] for tag in self.tags}
        return sorted(self.tags, key=lambda tag: ([*ranks[tag], True].index(True), tag))

    @property
    def shown_first(self) -> str | None:
        return next(iter(self.telling), None)

    def final(self, task: str) -> float | None:
        return next(iter(finals([series for series in self.series if series.task == task], self.shown_first)), None)

    def drawing(self, keys: Sequence[str], *, averaged: Sequence[str] = ()) -> dict[str, Any]:
        """Return what the page's script draws.

        A series has the values of the `keys`, and by tag number three numbers: where in `lists` its steps, its values
        and its seconds since `began` are; curves of one task mostly share their steps. `averaged` are the keys over
        which the page shows means at first.
        """
        number = {tag: index for index, tag in enumerate(self.tags)}
        drawn = [(one, {tag: one.curves[tag] for tag in self.tags if tag in one.curves}) for one in self.series]
        most = max(50, _POINTS_OF_ALL // max(sum(len(curves) for _, curves in drawn), 1))
        began = min((curve.times[0] for _, curves in drawn for curve in curves.values()), default=0.0)
        lists: dict[tuple[float, ...], int] = {}
        series = [
            {
                "name": clean(one.name),
                "place": clean(one.directory),
                "values": [clean(one.parameters.get(key, "")) for key in keys],
                "curves": {
                    number[tag]: [lists.setdefault(column, len(lists)) for column in _columns(curve, most, began)]
                    for tag, curve in curves.items()
                },
            }
            for one, curves in drawn
        ]
        return {
            "tags": [clean(tag) for tag in self.tags],
            "telling": [number[tag] for tag in self.telling],
            "keys": [clean(key) for key in keys],
            "averaged": [clean(key) for key in averaged],
            "began": began,
            "lists": list(lists),
            "series": series,
        }


def job_file(run: RunDirectory, tasks: Sequence[str]) -> JobFile:
    """Read a run's job file; one that is missing or broken says nothing.

    A job without a matrix has one key, the task itself.
    """
    try:
        content = compose((run.path / "job.yaml").read_text(encoding="utf-8"), origin="job.yaml").value
    except (OSError, UnicodeDecodeError, UnreadableError):
        content = {}
    content = content if isinstance(content, dict) else {}
    matrix = content.get("matrix")
    if isinstance(matrix, dict) and matrix and all(isinstance(values, list) for values in matrix.values()):
        texts = [[scalar_text(value) for value in values] for values in matrix.values()]
        # In the order of the run's tasks (spec/expand.py).
        combinations = [dict(zip(matrix, chosen, strict=True)) for chosen in itertools.product(*texts)]
        if len(combinations) == len(tasks):
            return JobFile(content, tuple(matrix), dict(zip(tasks, combinations, strict=True)))
    return JobFile(content, ("task",), {task: {"task": task} for task in tasks})


def read(run: RunDirectory, tasks: Iterable[str], job: JobFile, *, most: int = MOST_SERIES) -> tuple[list[Series], int]:
    """Read the event files among the outputs of a run's tasks, in the order of tasks; return how many are left out.

    Of many tasks those are read that are evenly spread: the first ones would have one value of the matrix's first key.
    """
    known = [task for task in tasks if run.outputs(task).is_dir()]
    count = min(len(known), most)
    by_attempt = job.content.get("outputs_each_attempt") is True
    series: list[Series] = []
    for index in range(count):
        if len(series) >= most:
            return series, len(known) - index
        task = known[index * len(known) // count]
        found = read_directory(run.outputs(task), points=_POINTS_OF_ONE, tags=2 * _MOST_TAGS, by_attempt=by_attempt)
        parameters = job.parameters.get(task, {})
        series += [Series(task, directory, parameters, curves) for directory, curves in found.items()]
    return series, len(known) - count


def chosen(series: Sequence[Series], left_out: int) -> Curves:
    """Return the series with the scalars that most of them have, up to a bound."""
    known = Counter(tag for one in series for tag in one.curves)
    common = sorted(tag for tag, _ in known.most_common(_MOST_TAGS))
    return Curves(tuple(series), tuple(common), left_out, len(known) - len(common))


def finals(series: Iterable[Series], tag: str | None) -> list[float]:
    last = [one.curves[tag].last() for one in series if tag in one.curves]
    return [value for value in last if value is not None]


def _columns(curve: Curve, most: int, began: float) -> list[tuple[float, ...]]:
    points = curve.points()
    kept = points[: -1 : -(-len(points) // most)] + points[-1:]
    return [
        tuple(round(step, 3) for step, _, _ in kept),
        tuple(float(f"{value:.5g}") for _, value, _ in kept),
        tuple(round(time - began, 1) for _, _, time in kept),
    ]


def _flattened(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flattened(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and any(isinstance(entry, dict | list) for entry in value):
        for index, entry in enumerate(value):
            yield from _flattened(entry, f"{path}.{index}")
    else:
        yield path, ", ".join(map(str, value)) if isinstance(value, list) else str(value)
