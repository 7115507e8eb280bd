"""Units that the head has not yet given to Ray, in one line for each shape."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Sequence

from trainyard_runner.head.units import Unit
from trainyard_runner.wire.plan import Shape

_MOST_TOGETHER = 8


class Queue:
    """Waiting units in lines by shape, and how many share one Ray task."""

    def __init__(self, units: Iterable[Unit]) -> None:
        self._lines: dict[Shape, deque[Unit]] = {}
        # How many units of a shape share one Ray task: more than one while attempts are quick.
        self._together: dict[Shape, int] = {}
        for unit in units:
            self.add(unit)

    def __bool__(self) -> bool:
        return any(self._lines.values())

    def lines(self) -> list[Sequence[Unit]]:
        return [line for line in self._lines.values() if line]

    def shapes(self) -> list[Shape]:
        return [shape for shape, line in self._lines.items() if line]

    def first(self, shape: Shape) -> Unit | None:
        """Return the next unit of a shape without removing it."""
        line = self._lines.get(shape)
        if not line:
            return None
        return line[0]

    def add(self, unit: Unit) -> None:
        self._line(unit).append(unit)

    def add_again(self, unit: Unit) -> None:
        """Queue a unit for a retry, at the front if it ever lost an attempt."""
        if unit.losses:
            self._line(unit).appendleft(unit)
        else:
            self.add(unit)

    def give_back(self, units: Sequence[Unit]) -> None:
        """Put units back at the front, without counting this attempt."""
        for unit in reversed(units):
            unit.attempt -= 1
            self._line(unit).appendleft(unit)

    def take(self, shape: Shape) -> list[Unit]:
        line = self._lines.get(shape, deque())
        units = list(line)
        line.clear()
        return units

    def take_all(self) -> list[Unit]:
        units: list[Unit] = []
        for line in self._lines.values():
            units += line
        self._lines.clear()
        return units

    def take_tasks(self, names: Container[str]) -> list[Unit]:
        """Remove and return the units whose first task is in `names`."""
        taken = []
        for line in self._lines.values():
            taken += [unit for unit in line if unit.tasks[0].name in names]
        for unit in taken:
            self._line(unit).remove(unit)
        return taken

    def begin(self, shape: Shape, *, window: int, is_alone: bool) -> list[Unit]:
        """Take the units of the next Ray task in order; begin their attempts.

        At least one unit of the shape must wait. A unit gets a Ray task of its
        own if `is_alone`, if it was tried before, or if it has actors. The
        caller gives Ray at most `window` Ray tasks of the shape: while fewer
        than `window` units wait, each gets its own.
        """
        line = self._lines[shape]
        if is_alone or shape.actors:
            most = 1
        else:
            most = min(self._together.get(shape, 1), 1 + len(line) // window)

        units = [line.popleft()]
        while line and len(units) < most and units[0].attempt == line[0].attempt == 0:
            units.append(line.popleft())

        for unit in units:
            unit.begin()
        return units

    def begin_first(self, shape: Shape) -> None:
        self._lines[shape].popleft().begin()

    def was_quick(self, shape: Shape) -> None:
        self._together[shape] = min(2 * self._together.get(shape, 1), _MOST_TOGETHER)

    def was_slow(self, shape: Shape) -> None:
        self._together[shape] = 1

    def _line(self, unit: Unit) -> deque[Unit]:
        return self._lines.setdefault(unit.tasks[0].shape, deque())
