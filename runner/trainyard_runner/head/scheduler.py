"""Runs all tasks of a plan: submits units, follows and stops their attempts."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainyard_runner.head.capacity import Capacity
from trainyard_runner.head.conclusions import Conclusions
from trainyard_runner.head.demand import DemandWatch
from trainyard_runner.head.drivers import Drivers
from trainyard_runner.head.in_flight import InFlight
from trainyard_runner.head.placing import LivingNodes, NodeMissingError
from trainyard_runner.head.queue import Queue
from trainyard_runner.head.records import Records
from trainyard_runner.head.submitting import Submitter
from trainyard_runner.head.sweep import Sweep
from trainyard_runner.head.units import Unit
from trainyard_runner.head.waiting import WaitingWatch
from trainyard_runner.ray_package import Pins
from trainyard_runner.stopping import GRACE
from trainyard_runner.wire import fit
from trainyard_runner.wire.events import Note
from trainyard_runner.wire.outcome import State
from trainyard_runner.wire.plan import Plan, Shape, Task
from trainyard_runner.wire.stream import EventStream


class Scheduler:
    """The main loop of a run."""

    def __init__(
        self,
        plan: Plan,
        *,
        submitter: Submitter,
        records: Records,
        stream: EventStream,
        watch: WaitingWatch,
        pins: Pins,
        say: Callable[[str], None],
        sweep: Sweep | None = None,
    ) -> None:
        """`say` writes a line to the job's log."""
        self._plan = plan
        self._records = records
        self._stream = stream
        self._watch = watch
        self._holdings = watch.holdings
        self._pins = pins
        self._say = say
        self._sweep = sweep
        self._stopping: set[str] = set()
        self._demand = DemandWatch(stream.write)
        self._drivers = Drivers(plan.run, lambda text: stream.write(Note(text)))
        self._nodes = LivingNodes()
        self._queue = Queue(_units(plan))
        self._in_flight = InFlight(
            plan,
            submitter=submitter,
            records=records,
            drivers=self._drivers,
            queue=self._queue,
            nodes=self._nodes,
        )
        self._capacity = Capacity(
            plan, nodes=self._nodes, in_flight=self._in_flight, holdings=watch.holdings
        )
        self._conclusions = Conclusions(
            records=records,
            stream=stream,
            queue=self._queue,
            in_flight=self._in_flight,
            capacity=self._capacity,
            sweep=sweep,
            say=say,
        )
        self._in_flight.on_end = self._conclusions.ended

    @property
    def counts(self) -> dict[State, int]:
        return self._conclusions.counts

    def run(self, stop_asked: Callable[[], float | None]) -> None:
        """Run until every task has ended, or the run is stopped.

        `stop_asked` returns None until the run is asked to stop, then the
        seconds left to do so.
        """
        try:
            while self._has_more() and stop_asked() is None:
                self._look_at_nodes()
                self._pins.look()
                self._follow_sweep()
                self._submit()
                self._in_flight.receive(0.1)
                self._drivers.look()
                self._fail_what_cannot_run()
                self._look_at_what_waits()
                self._look_at_demand()

            left = stop_asked()
            if left is not None:
                self._stop_all(left)
        finally:
            self._holdings.close()
            self._in_flight.clear()

    def _has_more(self) -> bool:
        sweep_has_more = self._sweep is not None and not self._sweep.is_over
        return bool(self._in_flight or self._queue or sweep_has_more)

    def _look_at_nodes(self) -> None:
        if self._nodes.is_due():
            if self._nodes.look():
                self._in_flight.withdraw(self._capacity.avoided)
            self._in_flight.lose_dead_nodes()

    def _follow_sweep(self) -> None:
        """Queue the tasks of new trials; stop the tasks of ended trials."""
        if self._sweep is None:
            return

        for unit in self._sweep.next_units(self._nodes.known):
            task = unit.tasks[0]
            if task.continues is not None:
                self._records.adopt(self._plan.former, task.continues, task.name)
            self._queue.add(unit)

        to_stop = self._sweep.to_stop
        for unit in self._queue.take_tasks(to_stop):
            self._conclusions.finish([unit], "stopped", reason=to_stop[unit.tasks[0].name])

        for live in self._in_flight.open():
            if live.task.name in to_stop.keys() - self._stopping:
                self._in_flight.stop(live.unit, to_stop[live.task.name])

        self._stopping = set(to_stop)

    def _submit(self) -> None:
        if self._in_flight.is_paused:
            return
        submitted = self._in_flight.count()
        for shape in self._queue.shapes():
            unit = self._queue.first(shape)
            if unit is not None and len(unit.tasks) > 1:
                self._submit_gang(unit)
            elif unit is not None:
                self._submit_line(unit, submitted=submitted[shape])

    def _submit_line(self, first: Unit, *, submitted: int) -> None:
        """Submit units of one shape until one must wait.

        `submitted`: how many Ray tasks of the shape are in flight already.
        """
        shape = first.tasks[0].shape
        window = self._capacity.window(first.tasks[0])
        unit: Unit | None = first
        while unit is not None and submitted < window:
            place = self._capacity.place(unit)
            if place is None:
                return

            # In a sweep, each unit gets its own Ray task: the sweep may stop any of them.
            units = self._queue.begin(shape, window=window, is_alone=self._sweep is not None)
            try:
                self._in_flight.submit(units, place)
            except NodeMissingError as error:
                self._queue.give_back(units)
                self._wait_for_node(unit.tasks[0], str(error))
                return

            submitted += 1
            if shape.actors:
                self._watch.publish_soon()
            unit = self._queue.first(shape)

    def _submit_gang(self, unit: Unit) -> None:
        try:
            if not self._in_flight.has_gang:
                place = self._capacity.place(unit)
                if place is None:
                    return
                self._in_flight.reserve(unit, place)
        except NodeMissingError as error:
            self._wait_for_node(unit.tasks[0], str(error))
            return

        if self._in_flight.gang_is_ready():
            self._queue.begin_first(unit.tasks[0].shape)
            self._in_flight.submit_gang(unit)

    def _wait_for_node(self, task: Task, problem: str) -> None:
        if self._capacity.is_missing_for_long(task, problem):
            self._give_up(task.shape, problem)

    def _fail_what_cannot_run(self) -> None:
        """Once the run has been idle too long, fail tasks that fit no node."""
        idle = self._in_flight.idle()
        if idle < fit.LEAST:
            return
        attempts = self._in_flight.open()
        if any(live.record.is_started for live in attempts):
            return

        shapes = {live.task.shape: live.task for live in attempts}
        for line in self._queue.lines():
            task = line[0].tasks[0]
            shapes[task.shape] = task

        for shape, task in shapes.items():
            if reason := self._capacity.why_never(task, idle=idle):
                self._give_up(shape, reason)

    def _give_up(self, shape: Shape, reason: str) -> None:
        self._conclusions.finish(self._queue.take(shape), "failed", reason=reason)
        self._stream.write(Note(f"given up: {reason}"))
        self._in_flight.give_up(shape, reason)

    def _look_at_what_waits(self) -> None:
        if not self._watch.is_due():
            return
        self._watch.look(
            self._queue.lines(),
            self._in_flight.open(),
            self._nodes.known,
            ended=self.counts,
            idle=self._in_flight.idle(),
            actors=self._in_flight.kept_free(),
        )

    def _look_at_demand(self) -> None:
        """Report what tasks' commands wait for, unless other runs' tasks wait.

        Ray does not say which run made a pending request.
        """
        if not self._demand.is_due():
            return
        attempts = self._in_flight.open()
        unplaced = [live.task for live in attempts if not live.record.is_started]
        if len(unplaced) == len(attempts):
            return
        if any(holding.waiting for holding in self._holdings.others()):
            return
        self._demand.look(self._drivers.connected, unplaced)

    def _stop_all(self, left: float) -> None:
        """End all attempts within `left` seconds, and record how they ended."""
        give_up = time.monotonic() + left
        self._say("stopping")
        grace = min(GRACE, max(0.3, left - 1.7))
        self._in_flight.stop_all("the run was stopped", grace=grace)
        waiting = self._queue.take_all()

        while self._in_flight and time.monotonic() < give_up:
            self._in_flight.receive(0.05)
            self._drivers.look()
            waiting += self._queue.take_all()

        self._drivers.give_up()
        waiting += self._queue.take_all()

        unended = self._in_flight.open()
        for live in unended:
            self._conclusions.stop_unended(live)

        units = {id(live.unit): live.unit for live in unended}
        self._conclusions.finish([*waiting, *units.values()], "stopped")


def _units(plan: Plan) -> list[Unit]:
    """Return the units, without tasks that succeeded in the resumed run."""
    skipped = plan.resume.skipped if plan.resume else ()
    tasks = tuple(task for task in plan.tasks if task.name not in skipped)
    if plan.together and tasks:
        return [Unit(tasks)]
    return [Unit((task,)) for task in tasks]
