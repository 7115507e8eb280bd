"""Scalars of TensorBoard events, CSV and JSON lines, thinned for a plot."""

from __future__ import annotations

import contextlib
import csv
import json
import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainyard_runner.wire import event_files, tree

from trainyard.results.formats import natural

Point = tuple[float, float, float]
# Tag, step, value, seconds since 1970.
Scalar = tuple[str, float, float, float]

# Names of steps in hand-written logs and in logs of Lightning, Stable-Baselines3, Ray Tune, CleanRL
# and RSL-RL.
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
    """At most `limit` evenly spread points of a scalar, and the last point."""

    limit: int
    steps: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))
    times: array[float] = field(default_factory=lambda: array("d"))
    _seen: int = 0
    _every: int = 1
    _last: Point = (-math.inf, math.nan, 0.0)

    def add(self, step: float, value: float, time: float = 0.0) -> None:
        """Add a point.

        A step that is not above the last one begins a later attempt: the
        earlier attempt's points from this step on are removed.
        """
        if step <= self._last[0]:
            keep = bisect_left(self.steps, step)
            del self.steps[keep:]
            del self.values[keep:]
            del self.times[keep:]
            if keep == 0:
                # A training that begins again is a curve of its own: its first point is kept.
                self._seen = 0
                self._every = 1

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
    """Return a directory's curves by subdirectory ("" for its top) and tag.

    Event files of one subdirectory are one resumed training, the oldest file
    first. With `by_attempt`, so are files in the same subdirectory of
    attempt-1/, attempt-2/ and so on.

    A table (see `read_table`; `step` names its steps) is read only if its
    subdirectory has no event files: a logger that writes both gives them the
    same values. At most `tags` tags of each subdirectory are read.
    """
    paths = [directory / name for name in tree.files(str(directory))]
    events = sorted((path for path in paths if ".tfevents." in path.name), key=_begun)
    have_events = {path.parent for path in events}
    tables = sorted(path for path in paths if path.suffix in (".csv", ".jsonl"))

    scalars_of = [(path, read_file(path)) for path in events]
    for path in tables:
        if path.parent not in have_events:
            scalars_of.append((path, read_table(path, step)))

    by_directory: dict[str, dict[str, Curve]] = {}
    for path, scalars in scalars_of:
        parts = path.parent.relative_to(directory).parts
        if by_attempt:
            parts = parts[1:]
        curves = by_directory.setdefault("/".join(parts), {})
        for tag, at, value, time in scalars:
            if tag in curves or len(curves) < tags:
                curves.setdefault(tag, Curve(points)).add(at, value, time)
    return {subdirectory: curves for subdirectory, curves in by_directory.items() if curves}


def read_file(path: Path) -> Iterator[Scalar]:
    """Yield an event file's scalars; skip those that are not finite."""
    with path.open("rb") as file:
        for scalar in event_files.scalars(file):
            if all(map(math.isfinite, scalar[1:])):
                yield scalar


def read_table(path: Path, step: str | None = None) -> Iterator[Scalar]:
    """Yield each row's finite numbers with its step, from CSV or JSON lines.

    A CSV needs a header. Steps are in the column or key `step`, or in one that
    common loggers use. A file without steps, or above 64 MiB, is other data and
    yields nothing. A row without a `timestamp` gets the file's modification
    time.
    """
    status = path.stat()
    if status.st_size > _LARGEST_TABLE:
        return

    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        rows: Iterable[Mapping[str, Any]] = csv.DictReader(file)
        if path.suffix == ".jsonl":
            rows = map(_json_row, file)

        names: tuple[str, ...] = _STEPS
        if step is not None:
            names = (step, *_STEPS)
        key: str | None = None
        # csv.Error: a field of more than 128 KiB is no number, and reading ends.
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
        if isinstance(row, dict):
            return row
    return {}


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a row, whose values are text in a CSV."""
    numbers: dict[str, float] = {}
    for name, value in row.items():
        is_scalar = isinstance(value, str | int | float) and not isinstance(value, bool)
        if isinstance(name, str) and is_scalar:
            with contextlib.suppress(ValueError, OverflowError):
                numbers[name] = float(value)
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def _begun(path: Path) -> tuple[list[str], int, str]:
    """Return an event file's sort key: directory, and time in the name.

    Names begin with events.out.tfevents.SECOND.HOST.
    """
    second = path.name.partition(".tfevents.")[2].split(".")[0]
    if not second.isdecimal():
        second = "0"
    return natural(str(path.parent)), int(second), path.name
