"""Decides after an attempt whether its unit is retried or has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trainyard_runner.head.capacity import Capacity
from trainyard_runner.head.in_flight import InFlight
from trainyard_runner.head.losses import Ending
from trainyard_runner.head.queue import Queue
from trainyard_runner.head.records import Records
from trainyard_runner.head.submitting import Live
from trainyard_runner.head.sweep import Sweep
from trainyard_runner.head.units import Unit
from trainyard_runner.wire.events import Note, TaskEnded
from trainyard_runner.wire.outcome import State, in_words
from trainyard_runner.wire.stream import EventStream


class Conclusions:
    """Retries or finishes a unit when its attempt ends; counts ended tasks."""

    def __init__(
        self,
        *,
        records: Records,
        stream: EventStream,
        queue: Queue,
        in_flight: InFlight,
        capacity: Capacity,
        sweep: Sweep | None,
        say: Callable[[str], None],
    ) -> None:
        """`say` writes a line to the job's log."""
        self._records = records
        self._stream = stream
        self._queue = queue
        self._in_flight = in_flight
        self._capacity = capacity
        self._sweep = sweep
        self._say = say
        self.counts: dict[State, int] = {"succeeded": 0, "failed": 0, "stopped": 0}

    def ended(self, live: Live, ending: Ending) -> None:
        """Record how an attempt ended, and retry or finish its unit.

        The first task that fails or is lost stops its whole gang. A unit is
        retried or finished once all its tasks have ended.
        """
        self._records.end(live.record, ending)
        self._blame(live)

        unit = live.unit
        reason = f" ({ending.reason})" if ending.reason else ""
        self._say(f"{live.task.name}: attempt {unit.attempt} {in_words(ending.outcome)}{reason}")

        had_culprit = unit.culprit is not None
        unit.ended(live.task, ending.outcome, is_final=ending.is_final)
        unit.reason = ending.reason

        if unit.culprit is not None and not had_culprit and not unit.is_over:
            outcome = in_words(ending.outcome)
            why = f"stopped together with {unit.culprit!r}, which {outcome}"
            self._in_flight.stop(unit, why)
        if unit.is_over:
            self._over(unit)

    def finish(self, units: Iterable[Unit], state: State, *, reason: str | None = None) -> None:
        """End the tasks of units for good, in this state."""
        for unit in units:
            for task in unit.tasks:
                self._finish(task.name, state, unit.attempt, reason=reason)

    def stop_unended(self, live: Live) -> None:
        late = Ending("stopped", "the run was stopped; the task had not ended in time")
        self._records.end(live.record, late)
        live.unit.ended(live.task, "stopped")

    def _blame(self, live: Live) -> None:
        """Avoid a node once the watchdog has ended two tasks there."""
        cause = (live.record.ended or {}).get("watch")
        # In a sweep, the configuration causes NaN, not the node.
        if cause is None or (self._sweep and cause == "nan"):
            return
        if tasks := self._capacity.blame(live):
            where = f"{live.record.node} is avoided for the rest of this run"
            text = f"{where}: the watchdog ended {len(tasks)} tasks there ({', '.join(tasks)})"
            self._stream.write(Note(text))
            self._in_flight.withdraw(self._capacity.avoided)

    def _over(self, unit: Unit) -> None:
        self._in_flight.release_gang()
        if unit.may_try_again():
            self._queue.add_again(unit)
            return
        for name, state in unit.states().items():
            self._finish(name, state, unit.attempt, last=unit.reason)

    def _finish(
        self,
        task: str,
        state: State,
        attempts: int,
        *,
        reason: str | None = None,
        last: str | None = None,
    ) -> None:
        """Count a task as ended, report it to the sweep, and write its event.

        `reason`: why the task gets no further attempt. `last`: why its last
        attempt ended; the sweep gets it if there is no `reason`.
        """
        self.counts[state] += 1
        if self._sweep is not None:
            self._sweep.ended(task, state, reason or last)
        self._stream.write(TaskEnded(task, state, attempts, reason))
