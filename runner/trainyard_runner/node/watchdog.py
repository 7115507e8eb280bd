"""Decides when to end an attempt because of its watched metric."""

from __future__ import annotations

import difflib
import math
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from trainyard_runner.node.metric_reader import MetricReader
from trainyard_runner.wire.names import plain

# The least seconds between two readings of files, and of an MLflow server.
_EVERY = 1.0
_EVERY_OF_SERVER = 5.0
# The pause after a reading, in multiples of the reading's duration: tasks may have many files.
_SHARE = 5
_LAST_SECONDS = 60.0
# Seconds. Attempts look every 0.2 s; a longer pause means a suspended or overloaded node.
_PACE = 0.4
_NAMED = 12
_LONGEST_ERROR = 500


class Broken(NamedTuple):
    """A broken rule: "first", "silence", "constant" or "nan"."""

    rule: str
    reason: str


@dataclass
class Rules:
    """Decides when an attempt has to end.

    Times are seconds of a clock that begins with the attempt, and pauses while
    the node is suspended or overloaded. `moved`: when the last finite value was
    read. `changed`: when a different value was last read. A failed reading
    restarts both. `last`: the last finite value.
    """

    watch: dict[str, Any]
    moved: float = 0.0
    changed: float = 0.0
    last: list[float] | None = None
    not_finite: list[float] | None = None
    # The last finite value before `not_finite`; `last` may be of a later step.
    before: list[float] | None = None

    def take(self, values: list[list[float]], *, at: float) -> None:
        """Note values read at `at`, oldest first, each [step, value, ...]."""
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
        """Restart `silence` and `constant` after a failed reading."""
        self.moved = at
        self.changed = at

    def broken(self, *, at: float) -> Broken | None:
        """Return the first rule that is broken at the time `at`."""
        metric = self.watch["metric"]
        if self.not_finite:
            step, value = self.not_finite[:2]
            before = _before(self.before)
            return Broken("nan", f"{metric} became {value} at step {step:g}{before}")

        if self.last is None:
            first = self.watch["first"]
            if at < first:
                return None
            return Broken("first", f"no first value of {metric} within {_duration(first)}")

        silence = self.watch["silence"]
        if at - self.moved >= silence:
            before = _before(self.last)
            return Broken("silence", f"no value of {metric} for {_duration(silence)}{before}")

        constant = self.watch["constant"]
        if constant and self.moved - self.changed >= constant:
            value = self.last[1]
            return Broken("constant", f"{metric} has been {value:g} for {_duration(constant)}")

        return None


def _before(known: list[float] | None) -> str:
    if known is None:
        return ""
    return f"; before, it was {known[1]:g} at step {known[0]:g}"


class MetricWatch:
    """Reads an attempt's metric in a thread; applies rules to the values.

    A quick attempt's metric is read once, at the end.
    """

    def __init__(
        self, watch: dict[str, Any], *, roots: list[Path], environment: Mapping[str, str]
    ) -> None:
        self.broken: Broken | None = None
        self._reader = MetricReader(watch, roots=roots, environment=environment)
        self._rules = Rules(watch)
        self._every = _EVERY_OF_SERVER if watch["source"] == "mlflow" else _EVERY
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
        """Start a due reading; return a finished reading's values as messages.

        Sets `broken` if a rule is broken. The rules' clock advances by at most
        _PACE per call.
        """
        now = time.monotonic()
        # A suspended or overloaded node pauses the clock: the training must not count as silent.
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
        """After the attempt's end, yield the last values as messages.

        After _LAST_SECONDS, yields a note that the metric was not read to its
        end.
        """
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
        """Return a note if the ended attempt wrote no finite value."""
        if self._rules.last:
            return None
        return f"no value of {self._rules.watch['metric']}{self._wrote()}"

    def close(self) -> None:
        self._reader.close()
        self._thread.shutdown(wait=False)

    def _take(
        self, reading: Future[list[list[float]]], *, has_ended: bool = False
    ) -> list[tuple[str, Any]]:
        error = reading.exception()  # of any class: programs write anything, and servers fail
        values: list[list[float]] = []
        self._error = None
        if error:
            self._error = f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]
            self._rules.hold(at=self._clock)
        else:
            values = reading.result()

        self._rules.take(values, at=self._clock)
        # Time counts up to the reading's beginning: the reading may miss later values.
        broken = self._rules.broken(at=self._began)
        if broken and not self.broken and (broken.rule == "nan" or not has_ended):
            self.broken = broken
            if broken.rule == "first":
                self.broken = Broken("first", broken.reason + self._wrote())

        finite = [value for value in values if math.isfinite(value[1])]
        if not finite:
            return []
        return [("metric", finite)]

    def _wrote(self) -> str:
        """Say which metrics were written, or why none could be read."""
        if self._error is not None:
            return f"; it could not be read: {self._error}"
        names = list(self._reader.names)
        if not names:
            return "; it wrote no values at all"

        metric = plain(self._rules.watch["metric"])
        named = ", ".join(difflib.get_close_matches(metric, names, n=_NAMED, cutoff=0.0))
        if len(names) > _NAMED:
            named += f" and {len(names) - _NAMED} more"
        return f"; it wrote: {named}"


def _duration(seconds: float) -> str:
    if seconds >= 120:
        return f"{seconds / 60:g} minutes"
    return f"{seconds:g} s"
