"""The learning curves of a run's tasks, as the page draws them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from trainyard.results.formats import clean
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
    """What one task wrote into one directory: curves by tag."""

    task: str
    name: str
    curves: dict[str, Curve]


@dataclass(frozen=True)
class Curves:
    """All curves of a run, and what had to be left out."""

    series: tuple[Series, ...]
    tags: tuple[str, ...]
    shown_first: str | None
    tasks_left_out: int
    tags_left_out: int

    def final(self, task: str) -> float | None:
        """Return where the curve that is shown first ended for a task."""
        for one in self.series:
            if one.task == task and self.shown_first in one.curves:
                return one.curves[self.shown_first].last()
        return None

    def drawing(self) -> dict[str, object]:
        """Return what the page's script draws: per series, tag number to [steps, values]."""
        number = {tag: index for index, tag in enumerate(self.tags)}
        total = sum(1 for one in self.series for tag in one.curves if tag in number)
        points = max(50, _POINTS_OF_ALL // max(total, 1))
        return {
            "tags": [clean(tag) for tag in self.tags],
            "first": number.get(self.shown_first or ""),
            "series": [
                {
                    "name": clean(one.name),
                    "curves": {number[tag]: _thinned(one.curves[tag], points) for tag in one.curves if tag in number},
                }
                for one in self.series
            ],
        }


def gather(run: RunDirectory, tasks: Iterable[str]) -> Curves:
    """Read the event files among the outputs of a run's tasks, in the order of tasks, up to a bound."""
    series: list[Series] = []
    left_out = 0
    for task in tasks:
        directory = run.outputs(task)
        if not directory.is_dir():
            continue
        if len(series) >= MOST_SERIES:
            left_out += 1
            continue
        for place, curves in read_directory(directory, points=_POINTS_OF_ONE, tags=2 * MOST_TAGS).items():
            series.append(Series(task, f"{task} · {place}" if place else task, curves))
    known = Counter(tag for one in series for tag in one.curves)
    common = [tag for tag, _ in known.most_common(MOST_TAGS)]
    return Curves(
        tuple(series),
        tuple(sorted(common)),
        min(common, key=_preference, default=None),
        left_out,
        len(known) - len(common),
    )


def _preference(tag: str) -> tuple[int, str]:
    rank = next((rank for rank, pattern in enumerate(_PREFERRED) if pattern.search(tag)), len(_PREFERRED))
    return rank, tag


def _thinned(curve: Curve, most: int) -> list[list[float]]:
    points = curve.points()
    every = -(-len(points) // most)
    kept = points[:-1:every] + points[-1:]
    return [[round(step, 3) for step, _ in kept], [float(f"{value:.5g}") for _, value in kept]]
