"""Scalars of TensorBoard event files, thinned to what a plot can show."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from trainyard_runner import event_files, tree

from trainyard.results.formats import natural

Point = tuple[float, float, float]


@dataclass
class Curve:
    """One scalar over steps: evenly spread points, never more than `limit`, and the last one always."""

    limit: int
    steps: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))
    times: array[float] = field(default_factory=lambda: array("d"))
    _seen: int = 0
    _every: int = 1
    _last: Point = (-math.inf, math.nan, 0.0)

    def add(self, step: float, value: float, time: float = 0.0) -> None:
        """Take in one more point.

        A step that does not grow means that a later attempt began again there: what it repeats replaces what was.
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
            self.steps, self.values, self.times = self.steps[::2], self.values[::2], self.times[::2]
            self._every *= 2

    def points(self) -> list[Point]:
        kept = list(zip(self.steps, self.values, self.times, strict=True))
        return kept if kept[-1:] == [self._last] else [*kept, self._last]

    @property
    def last(self) -> float:
        return self._last[1]


def read_directory(directory: Path, *, points: int, tags: int, by_attempt: bool = False) -> dict[str, dict[str, Curve]]:
    """Return the curves below a directory, by subdirectory ("" for its top) and tag.

    Files of one subdirectory are one story, in the order in which they were begun: a resumed training's files continue
    each other; with `by_attempt` also those of the same subdirectory below attempt-1/, attempt-2/ and so on. Of every
    subdirectory at most so many tags are read.
    """
    found: dict[str, dict[str, Curve]] = {}
    event_files = (directory / name for name in tree.files(str(directory)) if ".tfevents." in Path(name).name)
    for path in sorted(event_files, key=_begun):
        parts = path.parent.relative_to(directory).parts
        curves = found.setdefault("/".join(parts[1:] if by_attempt else parts), {})
        for tag, step, value, time in read_file(path):
            if tag not in curves and len(curves) >= tags:
                continue
            curves.setdefault(tag, Curve(points)).add(step, value, time)
    return {subdirectory: curves for subdirectory, curves in found.items() if curves}


def read_file(path: Path) -> Iterator[tuple[str, float, float, float]]:
    """Yield (tag, step, value, seconds since 1970) of every scalar in an event file of which all three are finite."""
    with path.open("rb") as file:
        yield from (scalar for scalar in event_files.scalars(file) if all(map(math.isfinite, scalar[1:])))


def _begun(path: Path) -> tuple[list[str], int, str]:
    """Sort event files by directory and by the second in their name (events.out.tfevents.SECOND.HOST...)."""
    second = path.name.partition(".tfevents.")[2].split(".")[0]
    return natural(str(path.parent)), int(second) if second.isdecimal() else 0, path.name
