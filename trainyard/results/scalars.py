"""Scalars of TensorBoard event files, CSV and JSON lines, thinned to what a plot can show."""

from __future__ import annotations

import contextlib
import csv
import json
import math
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainyard_runner.wire import event_files, tree

from trainyard.results.formats import natural

Point = tuple[float, float, float]
# Tag, step, value, seconds since 1970.
Scalar = tuple[str, float, float, float]

# How steps are named: by hand, by Lightning, Stable-Baselines3, Ray Tune, CleanRL, RSL-RL.
_STEPS = (
    "step",
    "global_step",
    "time/total_timesteps",
    "total_timesteps",
    "timestep",
    "timesteps",
    "steps",
    "training_iteration",
    "iteration",
    "iter",
    "update",
    "epoch",
    "episode",
)
_LARGEST_TABLE = 64 * 1024 * 1024


@dataclass
class Curve:
    """One scalar over steps: evenly spread points, never more than `limit`, and the last one
    always.
    """

    limit: int
    steps: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))
    times: array[float] = field(default_factory=lambda: array("d"))
    _seen: int = 0
    _every: int = 1
    _last: Point = (-math.inf, math.nan, 0.0)

    def add(self, step: float, value: float, time: float = 0.0) -> None:
        """Take in one more point.

        A step that does not grow means that a later attempt began again there: what it repeats
        replaces what was.
        """
        if step <= self._last[0]:
            keep = bisect_left(self.steps, step)
            del self.steps[keep:], self.values[keep:], self.times[keep:]

        if self._seen % self._every == 0:
            self.steps.append(step)
            self.values.append(value)
            self.times.append(time)

        self._seen += 1
        self._last = (step, value, time)
        if len(self.steps) >= self.limit:
            self.steps = self.steps[::2]
            self.values = self.values[::2]
            self.times = self.times[::2]
            self._every *= 2

    def points(self) -> list[Point]:
        kept = list(zip(self.steps, self.values, self.times, strict=True))
        if kept[-1:] == [self._last]:
            return kept
        return [*kept, self._last]

    @property
    def last(self) -> float:
        return self._last[1]


def read_directory(
    directory: Path, *, points: int, tags: int, by_attempt: bool = False, step: str | None = None
) -> dict[str, dict[str, Curve]]:
    """Return the curves below a directory, by subdirectory ("" for its top) and tag.

    Files of one subdirectory are one story, in the order in which they were begun: a resumed
    training's files continue each other; with `by_attempt` also those of the same subdirectory
    below attempt-1/, attempt-2/ and so on. A table (read_table; `step` names its steps) is read
    where its subdirectory has no event files: loggers that write both write the same. Of every
    subdirectory at most so many tags are read.
    """
    paths = [directory / name for name in tree.files(str(directory))]
    events = sorted((path for path in paths if ".tfevents." in path.name), key=_begun)
    have_events = {path.parent for path in events}
    tables = sorted(
        path
        for path in paths
        if path.suffix in (".csv", ".jsonl") and path.parent not in have_events
    )

    found: dict[str, dict[str, Curve]] = {}
    read = [
        *((path, read_file(path)) for path in events),
        *((path, read_table(path, step)) for path in tables),
    ]
    for path, scalars in read:
        parts = path.parent.relative_to(directory).parts
        curves = found.setdefault("/".join(parts[1:] if by_attempt else parts), {})
        for tag, at, value, time in scalars:
            if tag not in curves and len(curves) >= tags:
                continue
            curves.setdefault(tag, Curve(points)).add(at, value, time)

    return {subdirectory: curves for subdirectory, curves in found.items() if curves}


def read_file(path: Path) -> Iterator[Scalar]:
    """Yield every scalar in an event file of which all numbers are finite."""
    with path.open("rb") as file:
        for scalar in event_files.scalars(file):
            if all(map(math.isfinite, scalar[1:])):
                yield scalar


def read_table(path: Path, step: str | None = None) -> Iterator[Scalar]:
    """Yield every finite number beside the step of its row in a CSV with a header, or in JSON
    lines.

    The step is named `step`, or as common loggers name it; a file without one, or one of more than
    64 MiB, is data of another kind and yields nothing. Rows without a `timestamp` count as written
    when the file was changed last.
    """
    status = path.stat()
    if status.st_size > _LARGEST_TABLE:
        return

    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        rows = map(_json_row, file) if path.suffix == ".jsonl" else csv.DictReader(file)
        names = _STEPS if step is None else (step, *_STEPS)
        key: str | None = None

        # A field of more than 128 KiB is no number.
        with contextlib.suppress(csv.Error):
            for row in rows:
                key = key or next((name for name in names if name in row), None)
                if key is None:
                    return
                numbers = _numbers(row)
                at = numbers.pop(key, None)
                time = numbers.pop("timestamp", status.st_mtime)
                if at is not None:
                    for tag, value in numbers.items():
                        yield (tag, at, value, time)


def _json_row(line: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        row = json.loads(line)
        return row if isinstance(row, dict) else {}
    return {}


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a row; of a CSV all values are text."""
    numbers: dict[str, float] = {}
    for name, value in row.items():
        if (
            isinstance(name, str)
            and isinstance(value, str | int | float)
            and not isinstance(value, bool)
        ):
            with contextlib.suppress(ValueError, OverflowError):
                numbers[name] = float(value)
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def _begun(path: Path) -> tuple[list[str], int, str]:
    """Sort event files by directory and by the second in their name
    (events.out.tfevents.SECOND.HOST...).
    """
    second = path.name.partition(".tfevents.")[2].split(".")[0]
    return natural(str(path.parent)), int(second) if second.isdecimal() else 0, path.name
