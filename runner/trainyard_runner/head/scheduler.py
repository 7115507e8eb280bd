"""Runs all tasks of a plan: keeps Ray busy, records what happens, tries again, stops."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray._private import state as ray_state
from ray.exceptions import RayTaskError, WorkerCrashedError

from trainyard_runner.head import losses, placing, submitting
from trainyard_runner.head.demand import DemandWatch
from trainyard_runner.head.drivers import Drivers
from trainyard_runner.head.records import AttemptRecord, Records
from trainyard_runner.head.submitting import Gang, Live, RayTask, Submitter
from trainyard_runner.head.suspects import Suspects
from trainyard_runner.head.sweep import Sweep
from trainyard_runner.head.units import Unit
from trainyard_runner.head.waiting import Holding, Watch, by_node, in_numbers, kept_free
from trainyard_runner.ray_package import Pins
from trainyard_runner.stopping import StopBoard
from trainyard_runner.wire import fit, members, nodes, shares
from trainyard_runner.wire.outcome import QUICK, State, in_words
from trainyard_runner.wire.plan import Plan, Task
from trainyard_runner.wire.stream import EventStream

_LEAST_WINDOW = 16
_MOST_TOGETHER = 8
_LOOK_AT_NODES = 5.0
_AFTER_LOSS = 1.0


class Scheduler:
    """One run's tasks, from the first to the last."""

    def __init__(
        self,
        plan: Plan,
        *,
        submitter: Submitter,
        records: Records,
        stream: EventStream,
        watch: Watch,
        pins: Pins,
        say: Callable[[str], None],
        sweep: Sweep | None = None,
    ) -> None:
        """Prepare to run the tasks of a plan, and those that a sweep gives while it goes."""
        self._plan = plan
        self._sweep = sweep
        self._submitter = submitter
        self._records = records
        self._stream = stream
        self._watch = watch
        self._pins = pins
        self._say = say
        self._board = StopBoard(plan.run)
        self._suspects = Suspects()
        skipped = plan.resume.skipped if plan.resume else ()
        tasks = tuple(task for task in plan.tasks if task.name not in skipped)
        units = [Unit(tasks)] if plan.together and tasks else [Unit((task,)) for task in tasks]
        # Tasks of one shape wait in one line: a line that is held up does not hold up the others.
        self._lines: dict[tuple[Any, ...], deque[Unit]] = {}
        for unit in units:
            self._line(unit).append(unit)
        # How many attempts share a task of Ray's, by shape: more than one while those of the shape are quick.
        self._together: dict[tuple[Any, ...], int] = {}
        self._live: dict[Any, RayTask] = {}
        self._gang: Gang | None = None
        self._gang_asked = 0.0
        self._nodes: Sequence[nodes.Node] = ()
        self._nodes_at = -_LOOK_AT_NODES
        self._pause_until = 0.0
        self._progress_at = time.monotonic()
        self._is_stopping = False
        self._missing_since: dict[str, float] = {}
        self._stopping: set[str] = set()
        # What has ended, and whose driver Ray has not called ended yet.
        self._closing: dict[int, Live] = {}
        self._demand = DemandWatch(stream.write)
        self._drivers = Drivers(plan.run, lambda text: stream.write("note", text=text))
        self.counts: dict[State, int] = {"succeeded": 0, "failed": 0, "stopped": 0}

    def run(self, stop_asked: Callable[[], float | None]) -> None:
        """Run until every task has ended. `stop_asked` returns the seconds left once somebody wants the run to end."""
        try:
            while self._goes_on() and stop_asked() is None:
                self._look_at_nodes()
                self._pins.look()
                self._follow_sweep()
                self._submit()
                self._receive(0.1)
                self._drivers.look()
                self._fail_what_cannot_run()
                idle = time.monotonic() - self._progress_at
                self._watch.look(
                    *(self._lines.values(), self._open(), self._nodes),
                    ended=self.counts,
                    idle=idle,
                    actors=self._kept_free(),
                )
                self._look_at_demand()
            if (left := stop_asked()) is not None:
                self._stop_all(left)
        finally:
            self._board.clear()
            self._watch.close()
            if self._gang is not None:
                submitting.release(self._gang)

    def _look_at_demand(self) -> None:
        """Say what commands wait for in Ray; what other runs wait for there cannot be told from it."""
        if not self._demand.is_due():
            return
        running = [live for live in self._open() if live.record.is_started]
        if not running or any(each.waiting for each in self._watch.others()):
            return
        unplaced = [live.task for live in self._open() if not live.record.is_started]
        self._demand.look(self._drivers.connected, unplaced)

    def _goes_on(self) -> bool:
        has_more = self._sweep is not None and not self._sweep.is_over
        return bool(self._live or self._drivers or any(self._lines.values()) or has_more)

    def _follow_sweep(self) -> None:
        """Take in what a sweep wants to be tried, and stop what it has given up."""
        if self._sweep is None:
            return
        for unit in self._sweep.units(self._nodes):
            if (former := unit.tasks[0].continues) is not None:
                self._records.adopt(self._plan.former, former, unit.tasks[0].name)
            self._line(unit).append(unit)
        to_stop = self._sweep.to_stop
        for unit in [unit for line in self._lines.values() for unit in line if unit.tasks[0].name in to_stop]:
            self._line(unit).remove(unit)
            task = unit.tasks[0].name
            self._finish(task, "stopped", unit.attempt, reason=to_stop[task])
        for live in self._open():
            if live.task.name in to_stop.keys() - self._stopping:
                self._stop_rest(live.unit, to_stop[live.task.name])
        self._stopping = set(to_stop)

    def _open(self) -> list[Live]:
        return [live for ray_task in self._live.values() for live in ray_task.open.values()]

    def _line(self, unit: Unit) -> deque[Unit]:
        return self._lines.setdefault(unit.tasks[0].shape, deque())

    def _look_at_nodes(self) -> None:
        if time.monotonic() - self._nodes_at >= _LOOK_AT_NODES:
            self._nodes_at = time.monotonic()
            now = placing.alive()
            if now != self._nodes:
                self._nodes = now
                self._withdraw()
            self._give_up_dead_nodes()

    def _give_up_dead_nodes(self) -> None:
        """End attempts on nodes that Ray calls dead: its call to a worker that stands still returns minutes later."""
        alive = {node.node_id for node in self._nodes}
        for generator, ray_task in list(self._live.items()):
            node_id = ray_task.node_id
            if node_id is not None and node_id not in alive and not ray.wait([generator], timeout=0)[0]:
                del self._live[generator]
                for live in ray_task.open.values():
                    self._end(live, losses.Ending("lost", f"node {self._records.node_name(node_id)} died"))

    def _withdraw(self) -> None:
        """Take back from Ray what waits there for other nodes than it should by now."""
        for generator, ray_task in self._live.items():
            live = next(iter(ray_task.open.values()), None)
            if live is None or ray_task.is_placed or ray_task.is_withdrawn or len(live.unit.tasks) > 1:
                continue
            if ray_task.avoided != self._suspects.avoided(live.task, self._nodes):
                ray_task.is_withdrawn = True
                ray.cancel(generator)

    def _blame(self, live: Live) -> None:
        """Keep a node from the run's tasks once two of them were ended there for their metric."""
        node_id = live.record.node_id
        if node_id is None or len(live.unit.tasks) > 1:
            return
        if (tasks := self._suspects.blame(live.task.name, node_id)) and len(self._nodes) > 1:
            text = (
                f"{live.record.node} is avoided for the rest of this run: the watchdog ended {len(tasks)} tasks there"
            )
            self._stream.write("note", text=f"{text} ({', '.join(tasks)})")
            self._withdraw()

    def _submit(self) -> None:
        if time.monotonic() < self._pause_until:
            return
        submitted = Counter(ray_task.shape for ray_task in self._live.values())
        for shape, line in self._lines.items():
            if not line:
                continue
            if len(line[0].tasks) > 1:
                self._submit_gang(line)
                continue
            # Twice what fits: the next is there when one ends, and an autoscaler sees what waits.
            window = max(_LEAST_WINDOW, 2 * nodes.slots(line[0].tasks[0], self._nodes))
            while line and submitted[shape] < window and self._has_room(line[0]):
                avoided = self._suspects.avoided(line[0].tasks[0], self._nodes)
                among = self._share_of(line[0].tasks[0], avoided)
                if among is None and line[0].tasks[0].share is not None:
                    break
                units = self._next_units(line, most=min(self._together.get(shape, 1), 1 + len(line) // window))
                try:
                    self._live |= self._submitter.submit(units, self._nodes, avoided, among)
                except placing.NodeMissingError as error:
                    self._give_back(units)
                    self._wait_for_node(units[0].tasks[0], str(error))
                    break
                submitted[shape] += 1
                if shape[-1]:
                    self._watch.publish_soon()

    def _share_of(self, task: Task, avoided: frozenset[str]) -> shares.Alike | None:
        """Return the nodes that a task that wants a share gets it of; None if it wants none, or has to wait."""
        if task.share is None:
            return None
        asked: dict[shares.Size, shares.Asked] = {}
        for ray_task in self._live.values():
            if ray_task.shape == task.shape and ray_task.among is not None:
                here = asked.setdefault(ray_task.among.size, shares.Asked())
                here.all += 1
                here.unplaced += not ray_task.is_placed
        places = [node for node in self._places() if node.node_id not in avoided]
        return shares.chosen(task, places, asked, ray_state.available_resources_per_node)

    def _places(self) -> list[nodes.Node]:
        return shares.places(self._nodes, members.later(self._plan.gate, self._nodes))

    def _next_units(self, line: deque[Unit], *, most: int) -> list[Unit]:
        """Take what runs next, one after the other; who was tried before is tried alone."""
        units = [line.popleft()]
        # Tasks of a sweep are ended one by one.
        most = most if self._sweep is None and not units[0].tasks[0].actors else 1
        while line and len(units) < most and units[0].attempt == line[0].attempt == 0:
            units.append(line.popleft())
        for unit in units:
            unit.begin()
        return units

    def _has_room(self, unit: Unit) -> bool:
        """Say whether a unit leaves what tasks want free for what they start through Ray, and has its own."""
        others = self._watch.others()
        if not any(shape[-1] for shape in self._lines) and not any(each.actors for each in others):
            return True
        submitted = [(live.record.node, live.taken) for live in self._open()]
        own = Holding(self._plan.run, by_node(submitted), self._kept_free())
        tasks = [in_numbers(task, self._places()) for task in unit.tasks]
        return not kept_free(tasks, self._places(), [own, *others])

    def _kept_free(self) -> dict[str, float]:
        """Return what attempts want free, until nothing that they started is left."""
        tasks = [live.task for live in (*self._open(), *self._closing.values()) if live.task.actors]
        if not tasks:
            return {}
        wanted = fit.total(tasks).actors
        return {name: getattr(wanted, field) for name, field in fit.RESOURCES.items()}

    def _give_back(self, units: Sequence[Unit]) -> None:
        for unit in reversed(units):
            unit.attempt -= 1
            self._line(unit).appendleft(unit)

    def _submit_gang(self, line: deque[Unit]) -> None:
        unit = line[0]
        if self._gang is None and not self._has_room(unit):
            return
        try:
            if self._gang is None:
                self._gang = self._reserve(unit)
                self._gang_asked = time.monotonic()
        except placing.NodeMissingError as error:
            self._wait_for_node(unit.tasks[0], str(error))
            return
        if submitting.is_ready(self._gang):
            line.popleft()
            unit.begin()
            self._live |= self._submitter.submit_gang(unit, self._gang)

    def _reserve(self, unit: Unit) -> Gang:
        among: Sequence[shares.Alike | None] = [None] * len(unit.tasks)
        if any(task.share is not None for task in unit.tasks):
            found = shares.together(unit.tasks, self._places(), ray_state.available_resources_per_node)
            if found is None:
                raise placing.NodeMissingError(f"{len(unit.tasks)} tasks that run together do not fit at once")
            among = found
        return self._submitter.reserve(unit, self._nodes, among)

    def _wait_for_node(self, task: Task, problem: str) -> None:
        since = self._missing_since.setdefault(problem, time.monotonic())
        self._nodes_at = min(self._nodes_at, time.monotonic() - _LOOK_AT_NODES + 1.0)
        if time.monotonic() - since >= fit.without_growth(task, self._plan.gate, self._nodes):
            self._give_up(task.shape, problem)

    def _receive(self, timeout: float) -> None:
        """Take what has arrived, from every attempt that has something."""
        if not self._live:
            time.sleep(0.02)
            return
        waiting = list(self._live)
        ready, _ = ray.wait(waiting, num_returns=1, timeout=timeout)
        if ready and len(waiting) > 1:
            ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
        for generator in ready:
            self._take(generator, self._live[generator])

    def _take(self, generator: Any, ray_task: RayTask) -> None:
        try:
            said = ray.get(next(generator))
        except StopIteration:
            del self._live[generator]
            self._take_back(ray_task)
            for live in ray_task.open.values():
                culprit = live.unit.culprit
                self._end(live, losses.unsaid(node=live.record.node, is_stopping=self._is_stopping, culprit=culprit))
        except Exception as error:  # Ray's errors have no common base for tasks that failed on a node
            del self._live[generator]
            self._take_back(ray_task)
            if ray_task.open:
                self._lose(list(ray_task.open.values()), error)
        else:
            self._give_back([ray_task.open.pop(number).unit for number, batch in said if batch is None])
            for number, batch in said:
                if batch is not None:
                    self._hear(ray_task, number, batch)

    def _take_back(self, ray_task: RayTask) -> None:
        """Put what was withdrawn back into its line; what had just begun counts as lost."""
        if not ray_task.is_withdrawn or self._is_stopping:
            return
        for live in ray_task.open.values():
            if live.record.is_started:
                self._end(live, losses.Ending("lost", "it was taken back, to run on another node"))
            else:
                self._give_back([live.unit])
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
            attempt = f"{self._plan.run}:{live.task.name}:{live.unit.attempt}"
            self._board.stop([attempt], record.failure, grace=self._plan.stop_grace)
        if record.is_ready and not record.is_started:
            self._let_go(live.unit)
        # The places of a gang are given back when it is over: not before its last worker is.
        if record.ended is not None and len(live.unit.tasks) == 1:
            del ray_task.open[number]
            is_quick = record.ended["seconds"] < QUICK
            together = self._together.get(ray_task.shape, 1)
            self._together[ray_task.shape] = min(2 * together, _MOST_TOGETHER) if is_quick else 1
            self._end(live)

    def _let_go(self, unit: Unit) -> None:
        """Let a gang begin once each of its tasks has its place, and a worker there."""
        members = [live for live in self._open() if live.unit is unit]
        if len(members) == len(unit.tasks) and all(live.record.is_ready for live in members):
            self._board.go(unit.attempt)

    def _lose(self, attempts: Sequence[Live], error: Exception) -> None:
        """End the attempts of one task of Ray's that failed; those that it cannot have begun are given back."""
        first = attempts[0].record
        ending = self._explain(first, error, is_alone=len(attempts) == 1)
        if isinstance(error, WorkerCrashedError) and ending.outcome == "lost" and not first.is_started:
            ending = _crashed(attempts, ending)
        if isinstance(error, RayTaskError):
            self._give_back([live.unit for live in attempts[1:]])
            attempts = attempts[:1]
        self._together[attempts[0].task.shape] = 1
        for live in attempts:
            self._end(live, ending)

    def _explain(self, record: AttemptRecord, error: Exception, *, is_alone: bool) -> losses.Ending:
        now = placing.alive()
        is_alive = record.node is None or any(node.name == record.node for node in now)
        self._nodes, self._nodes_at = now, time.monotonic()
        if self._is_stopping:
            return losses.Ending("stopped", "the run was stopped")
        ending = losses.explain(error, node=record.node, node_is_alive=is_alive, is_alone=is_alone)
        if ending.outcome == "lost":
            # Ray may offer a dying node again until it knows; the pause keeps attempts from being wasted on it.
            self._pause_until = time.monotonic() + _AFTER_LOSS
        return ending

    def _end(self, live: Live, unsaid: losses.Ending | None = None) -> None:
        """End an attempt as its worker said, or else as it looks from here, once nothing that it started is left."""
        said = live.record.ended
        if not live.record.is_started or (said and said["seconds"] < QUICK):
            # Nothing connects to Ray in so short a time.
            self._conclude(live, unsaid)
            return
        self._closing[id(live)] = live
        self._drivers.ended(live.task.name, live.unit.attempt, lambda: self._conclude(live, unsaid))

    def _conclude(self, live: Live, unsaid: losses.Ending | None) -> None:
        self._closing.pop(id(live), None)
        said = live.record.ended
        ending = unsaid
        if said:
            is_final = said["outcome"] == "failed" and said["exit_code"] in live.task.final_exit_codes
            ending = losses.Ending(said["outcome"], said["reason"], is_final=is_final)
        if ending is None:
            raise AssertionError("an attempt ends with a word or an error")
        unit, task = live.unit, live.task
        self._progress_at = time.monotonic()
        if live.record.failure:
            ending = losses.Ending("failed", live.record.failure, is_final=True)
        self._records.end(live.record, ending)
        # In a sweep, NaN comes of the configuration.
        if said and "watch" in said and not (self._sweep and said["watch"] == "nan"):
            self._blame(live)
        self._say(f"{task.name}: attempt {unit.attempt} {in_words(ending.outcome)}" + _after(ending.reason))
        had_culprit = unit.culprit is not None
        unit.ended(task, ending.outcome, is_final=ending.is_final)
        unit.reason = ending.reason
        if unit.culprit is not None and not had_culprit and not unit.is_over:
            self._stop_rest(unit, f"stopped together with {unit.culprit!r}, which {in_words(ending.outcome)}")
        if unit.is_over:
            self._over(unit)

    def _over(self, unit: Unit) -> None:
        if self._gang is not None:
            submitting.release(self._gang)
            self._gang = None
        if unit.may_try_again():
            self._line(unit).append(unit) if unit.losses == 0 else self._line(unit).appendleft(unit)
            return
        for name, state in unit.states().items():
            self._finish(name, state, unit.attempt, last=unit.reason)

    def _finish(
        self, task: str, state: State, attempts: int, *, reason: str | None = None, last: str | None = None
    ) -> None:
        """Record that a task is not tried again: for a reason of its own, or that of its last attempt."""
        self.counts[state] += 1
        if self._sweep is not None:
            self._sweep.ended(task, state, reason or last)
        why = {"reason": reason} if reason else {}
        self._stream.write("task-ended", task=task, state=state, attempts=attempts, **why)

    def _stop_rest(self, unit: Unit, reason: str) -> None:
        rest = {generator: live for generator, ray_task in self._live.items() for live in ray_task.open.values()}
        rest = {generator: live for generator, live in rest.items() if live.unit is unit}
        ids = [f"{self._plan.run}:{live.task.name}:{unit.attempt}" for live in rest.values()]
        self._board.stop(ids, reason, grace=self._plan.stop_grace)
        for generator in rest:
            if not self._live[generator].is_placed:
                ray.cancel(generator)

    def _stop_all(self, left: float) -> None:
        """End everything within the seconds left; record what has ended, and how."""
        give_up = time.monotonic() + left
        self._is_stopping = True
        self._say("stopping")
        self._board.stop_all("the run was stopped", grace=min(self._plan.stop_grace, max(0.3, left - 1.7)))
        for generator, ray_task in self._live.items():
            if not ray_task.is_placed:
                ray.cancel(generator)
        waiting = self._take_lines()
        while (self._live or self._drivers) and time.monotonic() < give_up:
            self._receive(0.05)
            self._drivers.look()
            waiting += self._take_lines()
        self._drivers.give_up()
        waiting += self._take_lines()
        unended = self._open()
        for live in unended:
            late = losses.Ending("stopped", "the run was stopped; the task had not ended in time")
            self._records.end(live.record, late)
            live.unit.ended(live.task, "stopped")
        units = {id(live.unit): live.unit for live in unended}
        for unit in [*waiting, *units.values()]:
            for task in unit.tasks:
                self._finish(task.name, "stopped", unit.attempt)

    def _take_lines(self) -> list[Unit]:
        units = [unit for line in self._lines.values() for unit in line]
        self._lines.clear()
        return units

    def _fail_what_cannot_run(self) -> None:
        """Fail tasks that fit no living node for long, while nothing else happens."""
        idle = time.monotonic() - self._progress_at
        if idle < fit.LEAST or any(live.record.is_started for live in self._open()):
            return
        shapes = {live.task.shape: live.task for live in self._open()}
        shapes |= {line[0].tasks[0].shape: line[0].tasks[0] for line in self._lines.values() if line}
        for shape, task in shapes.items():
            if fit.has_all(task, self._nodes):
                continue
            if idle >= fit.patience(task, self._plan.gate, self._nodes):
                self._give_up(shape, fit.never(task, self._nodes))

    def _give_up(self, shape: tuple[Any, ...], reason: str) -> None:
        for unit in list(self._lines.get(shape, ())):
            for task in unit.tasks:
                self._finish(task.name, "failed", unit.attempt, reason=reason)
        self._lines[shape] = deque()
        self._stream.write("note", text=f"given up: {reason}")
        for generator, ray_task in list(self._live.items()):
            if ray_task.shape == shape:
                ray.cancel(generator)
                del self._live[generator]
                for live in ray_task.open.values():
                    self._end(live, losses.Ending("failed", reason, is_final=True))


def _crashed(attempts: Sequence[Live], ending: losses.Ending) -> losses.Ending:
    """Say with what a worker crashed before its tasks began. The same twice is final: packages that conflict."""
    said = losses.of_worker()
    if not said:
        return ending
    is_final = all(live.unit.crash == said[-1] for live in attempts)
    for live in attempts:
        live.unit.crash = said[-1]
    reason = f"Ray's worker process ended before the task began: {said[-1]}"
    return losses.Ending("failed" if is_final else "lost", reason, is_final=is_final, tail=said)


def _after(reason: str | None) -> str:
    return f" ({reason})" if reason else ""
