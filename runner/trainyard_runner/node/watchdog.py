"""A task counts as started when its metric moves: an attempt whose metric does not is ended, and
says why.
"""

from __future__ import annotations

import difflib
import math
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard_runner.node.metrics import MetricReader
from trainyard_runner.wire.names import plain

# Seconds from one reading to the next, at least; a server is asked less often.
_EVERY = 1.0
_EVERY_OF_SERVER = 5.0
# Reading takes at most one part in so many of the time: a task may leave very many files.
_SHARE = 5
_LAST_SECONDS = 60.0
# Attempts look every 0.2 s.
_PACE = 0.4
_NAMED = 12
_LONGEST_ERROR = 500


@dataclass
class Rules:
    """When an attempt has to end, by a clock that stands still while nobody looks."""

    watch: dict[str, Any]
    moved: float = 0.0
    changed: float = 0.0
    last: list[float] | None = None
    not_finite: list[float] | None = None
    # The last value before that one: what is read at once may hold later ones.
    before: list[float] | None = None

    def take(self, values: list[list[float]], *, at: float) -> None:
        """Take in what was read at that time: [step, value, ...] each, the oldest first."""
        for value in values:
            if not math.isfinite(value[1]):
                if self.not_finite is None:
                    self.not_finite = value
                    self.before = self.last
                continue
            if self.last is None or value[1] != self.last[1]:
                self.changed = at
            self.last = value
            self.moved = at

    def hold(self, *, at: float) -> None:
        """Note that values cannot be read now: nobody knows whether there are more."""
        self.moved = self.changed = at

    def broken(self, *, at: float) -> tuple[str, str] | None:
        """Return the rule that does not hold, and what happened; what was written comes from the
        reader.
        """
        metric = self.watch["metric"]
        last = self.last
        known = self.before if self.not_finite else last
        if known:
            before = f"; before, it was {known[1]:g} at step {known[0]:g}"
        else:
            before = ""

        if self.not_finite:
            return (
                "nan",
                f"{metric} became {self.not_finite[1]} at step {self.not_finite[0]:g}{before}",
            )

        if last is None:
            late = at >= self.watch["first"]
            if late:
                return (
                    "first",
                    f"no first value of {metric} within {_duration(self.watch['first'])}",
                )
            return None

        if at - self.moved >= self.watch["silence"]:
            return "silence", f"no value of {metric} for {_duration(self.watch['silence'])}{before}"
        if self.watch["constant"] and self.moved - self.changed >= self.watch["constant"]:
            return (
                "constant",
                f"{metric} has been {last[1]:g} for {_duration(self.watch['constant'])}",
            )

        return None


class MetricWatch:
    """Reads the metric of one attempt in the background; quick attempts are read once, at their
    end.
    """

    def __init__(
        self, watch: dict[str, Any], *, roots: list[Path], environment: Mapping[str, str]
    ) -> None:
        self.broken: tuple[str, str] | None = None
        self._reader = MetricReader(watch, roots=roots, environment=environment)
        self._rules = Rules(watch)

        if watch["source"] == "mlflow":
            self._every = _EVERY_OF_SERVER
        else:
            self._every = _EVERY

        self._thread = ThreadPoolExecutor(1, "trainyard-metric")
        self._reading: Future[list[list[float]]] | None = None
        self._error: str | None = None
        self._clock = 0.0
        self._looked_at = time.monotonic()
        self._began = 0.0
        self._due = self._every

    def feed(self, output: list[bytes]) -> None:
        self._reader.feed(output)

    def look(self) -> list[tuple[str, Any]]:
        """Return what is new as messages, and judge it; to be called often."""
        now = time.monotonic()
        # An attempt that was held up, or whose whole node is, is no silent one.
        self._clock += min(now - self._looked_at, _PACE)
        self._looked_at = now
        if self._reading is None and self._clock >= self._due:
            self._began = self._clock
            self._reading = self._thread.submit(self._reader.new)
        if self._reading is None or not self._reading.done():
            return []
        reading = self._reading
        self._reading = None
        self._due = self._clock + max(self._every, _SHARE * (self._clock - self._began))
        return self._take(reading)

    def last(self) -> Iterator[tuple[str, Any]]:
        """Yield what is new at the end of the attempt, as long as that takes no minute."""
        give_up = time.monotonic() + _LAST_SECONDS
        reading = self._reading or self._thread.submit(self._reader.new)
        is_last = self._reading is None
        while wait([reading], give_up - time.monotonic()).done:
            yield from self._take(reading, has_ended=True)
            if is_last and not self._reader.has_more:
                return
            reading = self._thread.submit(self._reader.new)
            is_last = True
        metric = self._rules.watch["metric"]
        yield "note", f"{metric} was not read to its end within {_LAST_SECONDS:.0f} s"

    def missing(self) -> str | None:
        """Say that an attempt which has ended wrote no value, if so."""
        if self._rules.last:
            return None
        return f"no value of {self._rules.watch['metric']}{self._wrote()}"

    def close(self) -> None:
        self._reader.close()
        self._thread.shutdown(wait=False)

    def _take(
        self, reading: Future[list[list[float]]], *, has_ended: bool = False
    ) -> list[tuple[str, Any]]:
        error = reading.exception()  # whatever a program wrote, and however a server fails
        values = [] if error else reading.result()
        if error:
            self._error = f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]
        else:
            self._error = None

        if error:
            self._rules.hold(at=self._clock)

        self._rules.take(values, at=self._clock)
        # What was written while it was read comes with the next reading.
        broken = self._rules.broken(at=self._began)
        if broken and not self.broken and (broken[0] == "nan" or not has_ended):
            self.broken = broken[0], broken[1] + (self._wrote() if broken[0] == "first" else "")

        finite = [value for value in values if math.isfinite(value[1])]
        return [("metric", finite)] if finite else []

    def _wrote(self) -> str:
        """Say what was written instead of the metric."""
        if self._error is not None:
            return f"; it could not be read: {self._error}"
        names = list(self._reader.names)
        if not names:
            return "; it wrote no values at all"
        closest = difflib.get_close_matches(
            plain(self._rules.watch["metric"]), names, n=_NAMED, cutoff=0.0
        )
        if len(names) > _NAMED:
            more = f" and {len(names) - _NAMED} more"
        else:
            more = ""
        return f"; it wrote: {', '.join(closest)}{more}"


def _duration(seconds: float) -> str:
    if seconds >= 120:
        return f"{seconds / 60:g} minutes"
    return f"{seconds:g} s"
