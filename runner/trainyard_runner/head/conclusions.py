"""Decides after an attempt whether its unit is retried, or its tasks have ended for good."""

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
    """Handles the end of every attempt, and counts the tasks that are not tried again."""

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
        """Write how attempts and tasks end; `say` writes a line to the job's log."""
        self._records = records
        self._stream = stream
        self._queue = queue
        self._in_flight = in_flight
        self._capacity = capacity
        self._sweep = sweep
        self._say = say
        self.counts: dict[State, int] = {"succeeded": 0, "failed": 0, "stopped": 0}

    def ended(self, live: Live, ending: Ending) -> None:
        """Record how an attempt ended; stop the rest of its gang, retry or finish its unit.

        The first task of a gang that fails stops the others. The unit is retried or finished once
        all of its tasks have ended.
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
        """Count these units' tasks as ended in `state`, and write events; none is tried again."""
        for unit in units:
            for task in unit.tasks:
                self._finish(task.name, state, unit.attempt, reason=reason)

    def stop_unended(self, live: Live) -> None:
        """Record as stopped an attempt that was asked to end and has not ended in time."""
        late = Ending("stopped", "the run was stopped; the task had not ended in time")
        self._records.end(live.record, late)
        live.unit.ended(live.task, "stopped")

    def _blame(self, live: Live) -> None:
        """Note whether the watchdog ended the attempt; avoid a node where it ended two tasks."""
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
        """Count a task as ended, tell the sweep, and write the event.

        `reason`: why it ended without a further attempt, for the event. `last`: the reason of its
        last attempt, which a sweep gets if there is no `reason`.
        """
        self.counts[state] += 1
        if self._sweep is not None:
            self._sweep.ended(task, state, reason or last)
        self._stream.write(TaskEnded(task, state, attempts, reason))
