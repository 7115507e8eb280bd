"""A task counts as started when its metric moves: an attempt whose metric does not is ended, and says why."""

from __future__ import annotations

import difflib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard_runner.metrics import MetricReader, plain

_EVERY = 1.0
# Another answer of a server costs it something each time.
_EVERY_OF_SERVER = 5.0
# Attempts look every 0.2 s.
_PACE = 0.4
_NAMED = 12


@dataclass
class Rules:
    """When an attempt has to end, by a clock that stands still while nobody looks."""

    watch: dict[str, Any]
    moved: float = 0.0
    changed: float = 0.0
    last: list[float] | None = None
    broken: list[float] | None = None

    def take(self, values: list[list[float]], *, at: float) -> None:
        for value in values:
            if not math.isfinite(value[1]):
                self.broken = self.broken or value
                continue
            if self.last is None or value[1] != self.last[1]:
                self.changed = at
            self.last, self.moved = value, at

    def hold(self, *, at: float) -> None:
        """Note that values cannot be read now: after the first nobody knows whether there are more."""
        if self.last is not None:
            self.changed += at - self.moved
            self.moved = at

    def broken_rule(self, *, at: float) -> tuple[str, str] | None:
        """Return the rule that does not hold, and what happened; what was written comes from the reader."""
        metric, last = self.watch["metric"], self.last
        if self.broken is not None:
            return "nan", f"{metric} became {self.broken[1]} at step {self.broken[0]:g}{_before(last)}"
        if last is None:
            late = at >= self.watch["first"]
            return ("first", f"no first value of {metric} within {_duration(self.watch['first'])}") if late else None
        if at - self.moved >= self.watch["silence"]:
            return "silence", f"no value of {metric} for {_duration(self.watch['silence'])}{_before(last)}"
        if self.watch["constant"] and self.moved - self.changed >= self.watch["constant"]:
            return "constant", f"{metric} has been {last[1]:g} for {_duration(self.watch['constant'])}"
        return None


class MetricWatch:
    """Reads the metric of one attempt in the background; quick attempts are read once, at their end."""

    def __init__(
        self,
        watch: dict[str, Any],
        *,
        roots: list[Path],
        environment: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.broken: tuple[str, str] | None = None
        self._reader = MetricReader(watch, roots=roots, environment=environment)
        self._rules = Rules(watch)
        self._every = _EVERY_OF_SERVER if watch["source"] == "mlflow" else _EVERY
        # The clock as it began, what is new, and why nothing could be read.
        self._readings: deque[tuple[float, list[list[float]], str | None]] = deque()
        self._error: str | None = None
        self._now, self._clock, self._looked = clock, 0.0, clock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def feed(self, output: list[bytes]) -> None:
        self._reader.feed(output)

    def look(self) -> list[tuple[str, Any]]:
        """Return what is new as messages, and judge it; to be called often."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._read_on, daemon=True, name="trainyard-metric")
            self._thread.start()
        now = self._now()
        # An attempt that was held up, or whose whole node is, is no silent one.
        self._clock += min(now - self._looked, _PACE)
        self._looked = now
        return self._take()

    def last(self) -> list[tuple[str, Any]]:
        """Return what is new at the end of the attempt."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(_EVERY_OF_SERVER)
        if self._thread is None or not self._thread.is_alive():
            self._read()
        return self._take(has_ended=True)

    def missing(self) -> str | None:
        """Say that an attempt which has ended wrote no value, if so."""
        return None if self._rules.last else f"no value of {self._rules.watch['metric']}{self._wrote()}"

    def close(self) -> None:
        self._closed.set()

    def _take(self, *, has_ended: bool = False) -> list[tuple[str, Any]]:
        new: list[list[float]] = []
        began = None
        while self._readings:
            began, values, self._error = self._readings.popleft()
            if self._error is not None:
                self._rules.hold(at=self._clock)
            self._rules.take(values, at=self._clock)
            new += [value for value in values if math.isfinite(value[1])]
        broken = None if began is None else self._rules.broken_rule(at=began)
        if broken is not None and self.broken is None and (broken[0] == "nan" or not has_ended):
            self.broken = (broken[0], broken[1] + (self._wrote() if broken[0] == "first" else ""))
        return [("metric", new)] if new else []

    def _wrote(self) -> str:
        """Say what was written instead of the metric."""
        if self._error is not None:
            return f"; it could not be read: {self._error}"
        names = sorted(self._reader.names)
        if not names:
            return "; it wrote no values at all"
        close = difflib.get_close_matches(plain(self._rules.watch["metric"]), names, n=1, cutoff=0.5)
        meant = f" (did you mean {close[0]}?)" if close else ""
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"; it wrote: {', '.join(names[:_NAMED])}{more}{meant}"

    def _read_on(self) -> None:
        while not self._closed.wait(self._every):
            self._read()

    def _read(self) -> None:
        began = self._clock
        try:
            self._readings.append((began, self._reader.new(), None))
        except Exception as error:  # whatever a program wrote, and however a server fails
            self._readings.append((began, [], f"{type(error).__name__}: {error}"))


def _before(last: list[float] | None) -> str:
    return f"; before, it was {last[1]:g} at step {last[0]:g}" if last else ""


def _duration(seconds: float) -> str:
    return f"{seconds / 60:g} minutes" if seconds >= 120 else f"{seconds:g} s"
