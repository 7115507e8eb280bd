"""The learning curves of a run's tasks, as the page draws them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.printable import clean
from trainyard.results.job_file import JobFile
from trainyard.results.scalars import Curve, read_directory
from trainyard.results.store import RunDirectory

MOST_SERIES = 150
MOST_TAGS = 40
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
class Series:
    """What one task wrote into one directory: curves by tag. `place` is that directory below its outputs."""

    task: str
    place: str
    parameters: Mapping[str, str]
    curves: dict[str, Curve]

    @property
    def name(self) -> str:
        """Return what tells it apart from the others."""
        known = [*self.parameters.values()] if "run" in self.parameters else [self.task]
        return " · ".join([*known, self.place] if self.place else known)


@dataclass(frozen=True)
class Curves:
    """All curves of a page, and what had to be left out."""

    series: tuple[Series, ...]
    tags: tuple[str, ...]
    tasks_left_out: int
    tags_left_out: int

    @property
    def shown_first(self) -> str | None:
        """Return the tag that most likely matters most."""
        return min(self.tags, key=_preference, default=None)

    def telling(self, count: int) -> list[str]:
        """Return the tags that most likely matter most."""
        return sorted(self.tags, key=_preference)[:count]

    def final(self, task: str) -> float | None:
        """Return where the curve that is shown first ended for a task."""
        return next(iter(finals([one for one in self.series if one.task == task], self.shown_first)), None)

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
                "place": clean(one.place),
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
            "telling": [number[tag] for tag in self.telling(len(self.tags))],
            "keys": [clean(key) for key in keys],
            "averaged": [clean(key) for key in averaged],
            "began": began,
            "lists": list(lists),
            "series": series,
        }


def read(run: RunDirectory, tasks: Iterable[str], job: JobFile, *, most: int = MOST_SERIES) -> tuple[list[Series], int]:
    """Read the event files among the outputs of a run's tasks, in the order of tasks; return how many are left out.

    Of many tasks those are read that are evenly spread: the first ones would have one value of the matrix's first key.
    """
    known = [task for task in tasks if run.outputs(task).is_dir()]
    count = min(len(known), most)
    series: list[Series] = []
    for index in range(count):
        if len(series) >= most:
            return series, len(known) - index
        task = known[index * len(known) // count]
        directory, parameters = run.outputs(task), job.parameters.get(task, {})
        found = read_directory(directory, points=_POINTS_OF_ONE, tags=2 * MOST_TAGS, by_attempt=job.by_attempt)
        series += [Series(task, place, parameters, curves) for place, curves in found.items()]
    return series, len(known) - count


def chosen(series: Sequence[Series], left_out: int) -> Curves:
    """Return the series with the scalars that most of them have, up to a bound."""
    known = Counter(tag for one in series for tag in one.curves)
    common = [tag for tag, _ in known.most_common(MOST_TAGS)]
    return Curves(tuple(series), tuple(sorted(common)), left_out, len(known) - len(common))


def finals(series: Iterable[Series], tag: str | None) -> list[float]:
    """Return the last values of a scalar."""
    last = [one.curves[tag].last() for one in series if tag in one.curves]
    return [value for value in last if value is not None]


def _preference(tag: str) -> tuple[int, str]:
    rank = next((rank for rank, pattern in enumerate(_PREFERRED) if pattern.search(tag)), len(_PREFERRED))
    return rank, tag


def _columns(curve: Curve, most: int, began: float) -> list[tuple[float, ...]]:
    points = curve.points()
    every = -(-len(points) // most)
    kept = points[:-1:every] + points[-1:]
    return [
        tuple(round(step, 3) for step, _, _ in kept),
        tuple(float(f"{value:.5g}") for _, value, _ in kept),
        tuple(round(time - began, 1) for _, _, time in kept),
    ]
