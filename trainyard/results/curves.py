"""The learning curves of a run's tasks, as the report's page draws them."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard_runner.wire.events import Metric
from trainyard_runner.wire.space import text_of

from trainyard.results.scalars import Curve, read_directory
from trainyard.results.store import RunDirectory
from trainyard.spec.yaml_source import UnreadableError, compose
from trainyard.wording import clean

_MOST_SERIES = 150
_MOST_TAGS = 40
_POINTS_OF_ONE = 400
_POINTS_OF_ALL = 200_000
_LARGEST_DRAWN = 1e150  # the page's script squares numbers, and the square must be finite

_NO_METRICS: Mapping[str, Curve] = {}

# Scalars that a reader most likely wants to see, the most likely first.
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
    """A resolved job file, and the parameters by which its tasks differ.

    `keys` are the matrix's keys. `parameters` has each task's values of them,
    by task.
    """

    content: Mapping[str, Any]
    keys: tuple[str, ...]
    parameters: Mapping[str, Mapping[str, str]]

    @property
    def metric(self) -> str | None:
        return self._watched("metric")

    @property
    def step(self) -> str | None:
        """Return the CSV column or JSON key with the metric's steps."""
        return self._watched("step")

    def _watched(self, key: str) -> str | None:
        section = self.content.get("tune") or self.content.get("watch")
        if isinstance(section, dict) and isinstance(section.get(key), str):
            return str(section[key])
        return None


@dataclass(frozen=True)
class Series:
    """A task's curves in one directory of its outputs, by tag."""

    task: str
    directory: str
    parameters: Mapping[str, str]
    curves: dict[str, Curve]

    def name(self, keys: Sequence[str], *, with_directory: bool) -> str:
        parts: list[str | None] = [self.task]
        if "run" in keys:
            parts = [self.parameters.get(key) for key in keys]
        if with_directory:
            parts.append(self.directory)
        return " · ".join(filter(None, parts))


@dataclass(frozen=True)
class Curves:
    """The curves of a page, and how many are left out.

    `tags` are the scalars, sorted by name. `telling` has the same ones, the
    most interesting first.
    """

    series: Sequence[Series]
    tags: Sequence[str]
    telling: Sequence[str]
    tasks_left_out: int
    tags_left_out: int

    @property
    def shown_first(self) -> str | None:
        if self.telling:
            return self.telling[0]
        return None

    def finals(self) -> dict[str, float]:
        """Return each task's last value of the scalar that is shown first.

        If several directories of a task have it, the first one counts.
        """
        tag = self.shown_first
        finals = {}
        for series in reversed(self.series):
            if tag and tag in series.curves:
                finals[series.task] = series.curves[tag].last
        return finals

    def drawing(self, keys: Sequence[str], *, averaged: Sequence[str] = ()) -> dict[str, Any]:
        """Return the data that the page's script draws.

        Each series has its values of `keys`. It maps each tag's number to three
        indices into `lists`: those of the steps, the values, and the seconds
        since `began`. Equal lists are stored once: a task's curves mostly share
        their steps. `averaged` are the keys over which the page averages at
        first.
        """
        drawn: list[Curve] = []
        for one in self.series:
            drawn += [one.curves[tag] for tag in self.tags if tag in one.curves]
        most = max(50, _POINTS_OF_ALL // max(len(drawn), 1))
        began = min((curve.times[0] for curve in drawn), default=0.0)

        writers = Counter((one.parameters.get("run"), one.task) for one in self.series)
        has_several = any(count > 1 for count in writers.values())
        lists: dict[tuple[float, ...], int] = {}
        series = []
        for one in self.series:
            numbers: dict[int, list[int]] = {}
            for tag_number, tag in enumerate(self.tags):
                if tag in one.curves:
                    columns = _columns(one.curves[tag], most, began)
                    numbers[tag_number] = [lists.setdefault(row, len(lists)) for row in columns]
            series.append(
                {
                    "name": clean(one.name(keys, with_directory=has_several)),
                    "place": clean(one.directory),
                    "values": [clean(one.parameters.get(key, "")) for key in keys],
                    "curves": numbers,
                }
            )

        return {
            "tags": [clean(tag) for tag in self.tags],
            "telling": [self.tags.index(tag) for tag in self.telling],
            "keys": [clean(key) for key in keys],
            "averaged": [clean(key) for key in averaged],
            "began": began,
            "lists": list(lists),
            "series": series,
        }


def job_file(run: RunDirectory, tasks: Sequence[str]) -> JobFile:
    """Read a run's job file; a missing or malformed file counts as empty.

    If the matrix is missing or does not match the tasks, the only key is
    `task`, with the task's name. Every task also has the parameter `run`, which
    is not among the keys.
    """
    try:
        content = compose(run.job_file.read_text(encoding="utf-8"), origin="job.yaml").value
        matrix = {}
        for key, values in content.get("matrix", {}).items():
            matrix[key] = list(map(text_of, values))
    except (OSError, ValueError, AttributeError, TypeError, UnreadableError):
        content = {}
        matrix = {}

    # `product` yields the combinations in the order of the run's tasks (spec/expand.py).
    combinations = list(itertools.product(*matrix.values()))
    if not matrix or len(combinations) != len(tasks):
        matrix = {"task": []}
        combinations = [(task,) for task in tasks]

    parameters = {}
    for task, combination in zip(tasks, combinations, strict=True):
        parameters[task] = {"run": run.name, **dict(zip(matrix, combination, strict=True))}
    return JobFile(content, tuple(matrix), parameters)


def read(
    run: RunDirectory,
    job: JobFile,
    *,
    most: int = _MOST_SERIES,
    metrics: Mapping[str, Curve] = _NO_METRICS,
) -> tuple[list[Series], int]:
    """Read the curves of tasks in order; also count the tasks left out.

    If there are too many, evenly spread ones are read: the first tasks would
    all have the same value of the matrix's first key. `metrics` are curves of
    the job's metric from the run's events, by task.
    """
    known = [task for task in job.parameters if task in metrics or run.outputs(task).is_dir()]
    count = min(len(known), most)
    by_attempt = job.content.get("outputs_each_attempt") is True
    series: list[Series] = []

    for index in range(count):
        if len(series) >= most:
            return series, len(known) - index

        task = known[index * len(known) // count]
        by_directory = read_directory(
            run.outputs(task),
            points=_POINTS_OF_ONE,
            tags=2 * _MOST_TAGS,
            by_attempt=by_attempt,
            step=job.step,
        )
        if task in metrics and not any(job.metric in curves for curves in by_directory.values()):
            by_directory.setdefault("", {})[job.metric or "metric"] = metrics[task]
        for directory, curves in by_directory.items():
            series.append(Series(task, directory, job.parameters[task], curves))

    return series, len(known) - count


def collect(event: Metric, metrics: dict[str, Curve]) -> None:
    """Add an event's finite values to its task's curve."""
    for step, value, time in event.values:
        if math.isfinite(step) and math.isfinite(value) and math.isfinite(time):
            metrics.setdefault(event.task, Curve(_POINTS_OF_ONE)).add(step, value, time)


def chosen(series: Sequence[Series], left_out: int, *, first: str | None = None) -> Curves:
    """Return the curves of the most common scalars; `first` is shown first."""
    known: Counter[str] = Counter()
    for one in series:
        known.update(list(one.curves))
    common = sorted(tag for tag, _ in known.most_common(_MOST_TAGS))
    telling = sorted(common, key=lambda tag: (tag != first, _rank(tag)))
    return Curves(series, common, telling, left_out, len(known) - len(common))


def _rank(tag: str) -> int:
    for rank, pattern in enumerate(_PREFERRED):
        if pattern.search(tag):
            return rank
    return len(_PREFERRED)


def _columns(curve: Curve, most: int, began: float) -> list[tuple[float, ...]]:
    points = curve.points()
    kept = points[: -1 : -(-len(points) // most)] + points[-1:]
    return [
        tuple(round(_drawable(step), 3) for step, _, _ in kept),
        tuple(float(f"{_drawable(value):.5g}") for _, value, _ in kept),
        tuple(round(_drawable(time - began), 1) for _, _, time in kept),
    ]


def _drawable(number: float) -> float:
    return max(-_LARGEST_DRAWN, min(number, _LARGEST_DRAWN))
