"""Attempts from submission until Ray has ended all that they started."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import RayTaskError, WorkerCrashedError

from trainyard_runner.head import losses, submitting
from trainyard_runner.head.drivers import Drivers
from trainyard_runner.head.losses import Ending
from trainyard_runner.head.placing import LivingNodes
from trainyard_runner.head.queue import Queue
from trainyard_runner.head.records import AttemptRecord, Records
from trainyard_runner.head.submitting import Gang, Live, Place, RayTask, Submitter
from trainyard_runner.head.units import Unit
from trainyard_runner.stopping import StopBoard
from trainyard_runner.wire import fit
from trainyard_runner.wire.nodes import names_of
from trainyard_runner.wire.outcome import QUICK
from trainyard_runner.wire.plan import Plan, Shape, Task

_AFTER_LOSS = 1.0


class InFlight:
    """Follows a run's attempts from their submission to their end."""

    def __init__(
        self,
        plan: Plan,
        *,
        submitter: Submitter,
        records: Records,
        drivers: Drivers,
        queue: Queue,
        nodes: LivingNodes,
    ) -> None:
        """`queue` gets back units that have not begun."""
        self._plan = plan
        self._submitter = submitter
        self._records = records
        self._drivers = drivers
        self._queue = queue
        self._nodes = nodes
        self._board = StopBoard(plan.run)
        # The key is Ray's generator of the node's messages.
        self._ray_tasks: dict[Any, RayTask] = {}
        # Ended attempts whose drivers, actors or groups Ray may still have.
        self._closing: dict[int, Live] = {}
        self._gang: Gang | None = None
        self._pause_until = 0.0
        self._progress_at = time.monotonic()
        self._is_stopping = False
        # Scheduler sets this to Conclusions.ended.
        self.on_end: Callable[[Live, Ending], None] = lambda live, ending: None

    def __bool__(self) -> bool:
        return bool(self._ray_tasks or self._drivers)

    @property
    def is_paused(self) -> bool:
        """Return whether submission pauses after a lost attempt."""
        return time.monotonic() < self._pause_until

    @property
    def has_gang(self) -> bool:
        return self._gang is not None

    def idle(self) -> float:
        """Return the seconds since an attempt last began or ended."""
        return time.monotonic() - self._progress_at

    def ray_tasks(self) -> list[RayTask]:
        return list(self._ray_tasks.values())

    def open(self) -> list[Live]:
        """Return the attempts that have not ended, started or not."""
        attempts: list[Live] = []
        for ray_task in self._ray_tasks.values():
            attempts += ray_task.open.values()
        return attempts

    def count(self) -> Counter[Shape]:
        """Count the Ray tasks in flight, not their attempts, by shape."""
        return Counter(ray_task.shape for ray_task in self._ray_tasks.values())

    def kept_free(self) -> dict[str, float]:
        """Return the amounts to keep free for actors; {} without actors.

        The keys are Ray's names. An attempt counts until it is closed: its
        actors may outlive its command.
        """
        attempts = [*self.open(), *self._closing.values()]
        tasks = [live.task for live in attempts if live.task.actors]
        if not tasks:
            return {}
        wanted = fit.total(tasks).actors
        return {name: getattr(wanted, field) for name, field in fit.RESOURCES.items()}

    def submit(self, units: Sequence[Unit], place: Place) -> None:
        """Submit units of one shape as one Ray task, which runs them in order.

        Raises NodeMissingError.
        """
        known = self._nodes.known
        self._ray_tasks |= self._submitter.submit(units, known, place.avoided, place.among[0])

    def reserve(self, unit: Unit, place: Place) -> None:
        """Ask Ray for a gang's placement group. Raises NodeMissingError."""
        self._gang = self._submitter.reserve(unit, self._nodes.known, place.among)

    def gang_is_ready(self) -> bool:
        return self._gang is not None and submitting.is_ready(self._gang)

    def submit_gang(self, unit: Unit) -> None:
        """Submit a gang's tasks to its placement group, which must be ready."""
        if self._gang is None:
            raise AssertionError("a gang needs its placement group before it starts")
        self._ray_tasks |= self._submitter.submit_gang(unit, self._gang)

    def release_gang(self) -> None:
        if self._gang is not None:
            submitting.release(self._gang)
            self._gang = None

    def receive(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for messages, then apply some.

        This applies one batch of messages of each ready Ray task.
        """
        if not self._ray_tasks:
            time.sleep(0.02)
            return
        waiting = list(self._ray_tasks)
        # While tasks are quick, messages are already there, and one question to Ray is enough.
        ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
        if not ready:
            ready, _ = ray.wait(waiting, num_returns=1, timeout=timeout)
        for generator in ready:
            self._take(generator, self._ray_tasks[generator])

    def withdraw(self, avoided: Callable[[Task], frozenset[str]]) -> None:
        """Cancel single tasks that wait in Ray with old lists of avoided nodes.

        Their units are queued again when Ray reports the cancellation.
        `avoided` returns the ids of the nodes that a task must now avoid.
        """
        for generator, ray_task in self._ray_tasks.items():
            live = next(iter(ray_task.open.values()), None)
            if live is None or len(live.unit.tasks) > 1:
                continue
            if ray_task.is_placed or ray_task.is_withdrawn:
                continue
            if ray_task.avoided != avoided(live.task):
                ray_task.is_withdrawn = True
                ray.cancel(generator)

    def lose_dead_nodes(self) -> None:
        """End attempts on dead nodes as lost, once all messages are read.

        Ray itself may take minutes to fail a task whose worker hung.
        """
        alive = {node.node_id for node in self._nodes.known}
        for generator, ray_task in list(self._ray_tasks.items()):
            node_id = ray_task.node_id
            if node_id is None or node_id in alive:
                continue
            has_message, _ = ray.wait([generator], timeout=0)
            if has_message:
                continue

            del self._ray_tasks[generator]
            reason = f"node {self._records.node_name(node_id)} died"
            for live in ray_task.open.values():
                self._end(live, Ending("lost", reason))

    def stop(self, unit: Unit, reason: str) -> None:
        """Ask a unit's attempts to end, and cancel those without a node."""
        attempts = []
        unplaced = []
        for generator, ray_task in self._ray_tasks.items():
            of_unit = [live for live in ray_task.open.values() if live.unit is unit]
            attempts += of_unit
            if of_unit and not ray_task.is_placed:
                unplaced.append(generator)

        names = [self._name(live) for live in attempts]
        self._board.stop(names, reason)
        for generator in unplaced:
            ray.cancel(generator)

    def stop_all(self, reason: str, *, grace: float) -> None:
        """Ask all attempts to end; return at once.

        This cancels attempts that Ray has not placed. From now on, an attempt
        that ends without a report counts as stopped.
        """
        self._is_stopping = True
        self._board.stop_all(reason, grace=grace)
        for generator, ray_task in self._ray_tasks.items():
            if not ray_task.is_placed:
                ray.cancel(generator)

    def give_up(self, shape: Shape, reason: str) -> None:
        """Cancel all attempts of a shape; they fail and are not retried."""
        for generator, ray_task in list(self._ray_tasks.items()):
            if ray_task.shape == shape:
                ray.cancel(generator)
                del self._ray_tasks[generator]
                for live in ray_task.open.values():
                    self._end(live, Ending("failed", reason, is_final=True))

    def clear(self) -> None:
        self._board.clear()
        self.release_gang()

    def _take(self, generator: Any, ray_task: RayTask) -> None:
        try:
            messages = ray.get(next(generator))
        except StopIteration:
            del self._ray_tasks[generator]
            self._requeue_withdrawn(ray_task)
            for live in ray_task.open.values():
                ending = losses.unsaid(
                    node=live.record.node,
                    is_stopping=self._is_stopping,
                    culprit=live.unit.culprit,
                )
                self._end(live, ending)
        except Exception as error:
            # The errors that Ray raises for a failed task have no common base class.
            del self._ray_tasks[generator]
            self._requeue_withdrawn(ray_task)
            if ray_task.open:
                self._lose(list(ray_task.open.values()), error)
        else:
            unbegun = [number for number, batch in messages if batch is None]
            self._queue.give_back([ray_task.open.pop(number).unit for number in unbegun])
            for number, batch in messages:
                if batch is not None:
                    self._hear(ray_task, number, batch)

    def _requeue_withdrawn(self, ray_task: RayTask) -> None:
        """Queue a withdrawn Ray task's units again, unless the run is stopping.

        An attempt that had begun counts as lost.
        """
        if not ray_task.is_withdrawn or self._is_stopping:
            return
        for live in ray_task.open.values():
            if live.record.is_started:
                self._end(live, Ending("lost", "it was cancelled, to run on another node"))
            else:
                self._queue.give_back([live.unit])
        ray_task.open = {}

    def _hear(self, ray_task: RayTask, number: int, batch: list[tuple[str, Any]]) -> None:
        live = ray_task.open[number]
        record = live.record
        live.held.clear()

        if not record.is_started:
            self._progress_at = time.monotonic()

        had_failure = record.failure is not None
        self._records.apply(record, batch)
        ray_task.node_id = record.node_id

        if record.failure and not had_failure:
            self._board.stop([self._name(live)], record.failure)

        if record.is_ready and not record.is_started:
            self._start_if_ready(live.unit)

        # A gang's attempts end only when their Ray tasks end: by then, the gang's bundles are free.
        if record.ended is not None and len(live.unit.tasks) == 1:
            del ray_task.open[number]
            if record.ended["seconds"] < QUICK:
                self._queue.was_quick(ray_task.shape)
            else:
                self._queue.was_slow(ray_task.shape)
            self._end(live)

    def _start_if_ready(self, unit: Unit) -> None:
        members = [live for live in self.open() if live.unit is unit]
        if len(members) == len(unit.tasks) and all(live.record.is_ready for live in members):
            self._board.go(unit.attempt)

    def _lose(self, attempts: Sequence[Live], error: Exception) -> None:
        """End the attempts of a Ray task for which Ray raised `error`.

        A RayTaskError concerns the first attempt only: the others have not
        begun, and are queued again.
        """
        first = attempts[0].record
        ending = self._explain(first, error, is_alone=len(attempts) == 1)
        crashed_before = isinstance(error, WorkerCrashedError) and not first.is_started
        if crashed_before and ending.outcome == "lost":
            ending = _crashed(attempts, ending)

        if isinstance(error, RayTaskError):
            self._queue.give_back([live.unit for live in attempts[1:]])
            attempts = attempts[:1]

        self._queue.was_slow(attempts[0].task.shape)
        for live in attempts:
            self._end(live, ending)

    def _explain(self, record: AttemptRecord, error: Exception, *, is_alone: bool) -> Ending:
        self._nodes.look()
        if self._is_stopping:
            return Ending("stopped", "the run was stopped")

        alive = names_of(self._nodes.known)
        is_alive = record.node is None or record.node in alive
        ending = losses.explain(error, node=record.node, node_is_alive=is_alive, is_alone=is_alone)
        if ending.outcome == "lost":
            # Until Ray notices a dead node, it places new attempts there, which would be lost, too.
            self._pause_until = time.monotonic() + _AFTER_LOSS
        return ending

    def _end(self, live: Live, unsaid: Ending | None = None) -> None:
        """Close an attempt after Ray's cleanup.

        An attempt that was quick or never began is closed at once. `unsaid`:
        how the attempt ended, if its worker did not report it.
        """
        said = live.record.ended
        if not live.record.is_started or (said and said["seconds"] < QUICK):
            # A command cannot have connected to Ray in so short a time.
            self._close(live, unsaid)
            return
        self._closing[id(live)] = live
        self._drivers.wait_for_end(
            live.task.name, live.unit.attempt, lambda: self._close(live, unsaid)
        )

    def _close(self, live: Live, unsaid: Ending | None) -> None:
        self._closing.pop(id(live), None)
        self._progress_at = time.monotonic()
        self.on_end(live, _ending(live, unsaid))

    def _name(self, live: Live) -> str:
        """Return an attempt's id, as `attempt_id` on the node."""
        return f"{self._plan.run}:{live.task.name}:{live.unit.attempt}"


def _ending(live: Live, unsaid: Ending | None) -> Ending:
    """Return an attempt's failure, else its worker's report, else `unsaid`."""
    if live.record.failure:
        return Ending("failed", live.record.failure, is_final=True)
    said = live.record.ended
    if said:
        is_final = said["outcome"] == "failed" and said["exit_code"] in live.task.final_exit_codes
        return Ending(said["outcome"], said["reason"], is_final=is_final)
    if unsaid is None:
        raise AssertionError("an attempt ends with a report or an error")
    return unsaid


def _crashed(attempts: Sequence[Live], ending: Ending) -> Ending:
    """Return the ending of attempts whose worker crashed before they began.

    Asks Ray for the worker's last lines; without any, returns `ending`. If
    every unit's previous crash had the same last line, a retry cannot help
    (packages may conflict): the ending is failed and final.
    """
    lines = losses.of_worker()
    if not lines:
        return ending

    crash = lines[-1]
    is_final = all(live.unit.crash == crash for live in attempts)
    for live in attempts:
        live.unit.crash = crash

    reason = f"Ray's worker process ended before the task began: {crash}"
    outcome = "failed" if is_final else "lost"
    return Ending(outcome, reason, is_final=is_final, tail=lines)
