"""Explains in words why tasks wait: for resources, nodes or packages."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ray._private import state

from trainyard_runner.head import drivers
from trainyard_runner.head.holdings import Holding, Holdings, by_node, in_numbers, kept_free
from trainyard_runner.head.submitting import Live
from trainyard_runner.head.units import Unit
from trainyard_runner.wire import fit, nodes
from trainyard_runner.wire.events import KeptFree, Waiting
from trainyard_runner.wire.fit import RESOURCES
from trainyard_runner.wire.nodes import Node
from trainyard_runner.wire.outcome import State
from trainyard_runner.wire.plan import Gate, Plan, Shape, Task
from trainyard_runner.wire.stream import EventStream

_MOST_PACKAGES = 4


@dataclass(frozen=True)
class Line:
    """Tasks of one shape that have not started.

    `count`: how many tasks. `unit`: one of the tasks, or all tasks of a gang.
    `is_submitted`: some of the tasks are in Ray, so resources are already kept
    free for their actors.
    """

    count: int
    unit: tuple[Task, ...]
    is_submitted: bool = False


@dataclass(frozen=True)
class Cluster:
    """The living nodes, and which of their resources are free and held.

    `free`: amounts by node's id. `holdings`: those of all runs, this one
    included. `started`: the amounts that tasks' actors and placement groups
    hold, by run and node's name.
    """

    alive: Sequence[Node]
    free: Mapping[str, Mapping[str, float]]
    holdings: Sequence[Holding]
    started: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Reason:
    """The reason why tasks wait.

    `tasks`: how many wait. `needs`: what one waiting unit asks for. `holders`:
    the runs that hold the missing resources, or need them free for actors.
    `text`: the whole reason in words.
    """

    tasks: int
    needs: str
    holders: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class _Held:
    """The amount of a resource that a run holds.

    `tasks`: how many of the run's tasks hold it. `has_started`: actors or
    placement groups of the tasks hold some of it.
    """

    run: str
    value: float
    tasks: int
    has_started: bool

    def by(self) -> str:
        holders = []
        if self.tasks == 1:
            holders.append("1 task")
        elif self.tasks:
            holders.append(f"{self.tasks} tasks")
        if self.has_started:
            holders.append("actors or placement groups")
        return " and ".join(holders)


def explain(line: Line, gate: Gate, cluster: Cluster, *, run: str) -> Reason | None:
    """Return why tasks of `run` wait; None if Ray can start them now."""
    unit = tuple(in_numbers(task, cluster.alive) for task in line.unit)
    needs = fit.describe(fit.total(unit))
    if len(unit) > 1:
        who = f"{line.count} tasks that run together wait for {needs} in all"
    elif line.count == 1:
        who = f"1 task waits for {needs}"
    else:
        who = f"{line.count} tasks wait for {needs} each"

    if not fit.fits_together(unit, cluster.alive) or fit.lacking(unit, cluster.alive):
        unfit = [task for task in unit if not nodes.slots(task, cluster.alive)]
        task = unfit[0] if unfit else unit[0]
        return Reason(line.count, needs, (), f"{who}: {fit.missing(task, gate, cluster.alive)}")

    found = None
    if not line.is_submitted:
        found = _kept_from(unit, cluster, run=run)
    found = found or _used_up(unit, cluster, run=run)
    if found is None:
        return None
    holders, text = found
    return Reason(line.count, needs, holders, f"{who}: {text}")


def _kept_from(
    unit: Sequence[Task], cluster: Cluster, *, run: str
) -> tuple[tuple[str, ...], str] | None:
    """Explain which resources must stay free for actors; None if enough do.

    Returns the runs that hold these resources or need them, and a text with
    the amounts.
    """
    short = kept_free(unit, cluster.alive, cluster.holdings)
    if not short:
        return None

    keepers = []
    for holding in cluster.holdings:
        if any(holding.all_of(name) for name in short):
            keepers.append(holding.run)
    return tuple(keepers), "; ".join(_kept(name, cluster, run=run) for name in short)


def _used_up(
    unit: Sequence[Task], cluster: Cluster, *, run: str
) -> tuple[tuple[str, ...], str] | None:
    """Explain which resources that a unit needs are in use; None if it fits.

    Returns the runs that hold these resources, and a text with the amounts.
    """
    places = []
    for node in cluster.alive:
        if any(nodes.slots(task, [node]) for task in unit):
            places.append(node)
    free = nodes.all_with_free(places, cluster.free)
    if fit.fits_together(unit, free):
        return None

    holders: dict[str, None] = {}
    parts = []
    for name in _short(unit, free):
        of_runs = list(_held(name, places, cluster))
        holders |= dict.fromkeys(held.run for held in of_runs)
        parts.append(_in_use(name, places, free, of_runs, run=run))
    return tuple(holders), "; ".join(parts)


def _short(unit: Sequence[Task], free: Sequence[Node]) -> list[str]:
    """Return the resources of which too little is free for a unit.

    If enough of each resource is free, but not on the same nodes, returns all
    resources that the unit asks for.
    """
    asked: dict[str, None] = {}
    for task in unit:
        asked |= dict.fromkeys(nodes.amounts(task))

    short = []
    for name in asked:
        if not fit.fits_together([_only(task, name) for task in unit], free):
            short.append(name)
    return short or list(asked)


def installing(line: Line, runtime_env: Mapping[str, Any], *, seconds: float) -> Reason | None:
    """Explain that Ray first installs packages; None without packages.

    `seconds`: for how long the tasks have waited.
    """
    packages: list[str] = []
    for kind in ("uv", "pip"):
        asked = runtime_env.get(kind) or []
        packages += asked if isinstance(asked, list) else asked.get("packages", [])

    if isinstance(runtime_env.get("conda"), dict):
        packages.append("a conda environment")
    if not packages:
        return None

    # A wheel of the job is a path that Ray replaces: only the file's name is shown.
    named = ", ".join(name.rpartition("/")[2] for name in packages[:_MOST_PACKAGES])
    if len(packages) > _MOST_PACKAGES:
        named += f" and {len(packages) - _MOST_PACKAGES} more"

    who = "1 task waits" if line.count == 1 else f"{line.count} tasks wait"
    text = f"{who} for Ray, which first installs {named} where a node lacks them"
    if seconds >= 60:
        text += f", for {int(seconds // 60)} min"

    return Reason(line.count, "packages", (), text)


def _kept(name: str, cluster: Cluster, *, run: str) -> str:
    """Say how much of a resource each run holds, or needs free for actors."""
    used = 0.0
    by = []
    for holding in cluster.holdings:
        value = holding.all_of(name)
        if value:
            used += value
            by.append(f"{_bare(name, value)} by {_called(holding.run, run)}")

    total = nodes.in_all(name, cluster.alive)
    in_all = f"{_bare(name, used)} of {fit.amount(name, total)} in use or kept free"
    return ", ".join([in_all, *by])


def _called(run: str, this_run: str) -> str:
    if run == this_run:
        return "this run"
    return f"run {run}"


def _in_use(
    name: str,
    places: Sequence[Node],
    free: Sequence[Node],
    held: Sequence[_Held],
    *,
    run: str,
) -> str:
    total = nodes.in_all(name, places)
    left = [node.resources.get(name, 0) for node in free]
    used = total - sum(left)
    parts = [f"{_bare(name, used)} of {fit.amount(name, total)} in use"]
    for of_run in held:
        value = _bare(name, of_run.value)
        parts.append(f"{value} by {_called(of_run.run, run)} ({of_run.by()})")

    # A small difference does not mean that there is another holder. Ray rounds to ten-thousandths,
    # and the files of runs are a moment older than Ray's numbers.
    others = used - sum(of_run.value for of_run in held)
    if others > total / 1000:
        parts.append(f"{_bare(name, others)} by others")
    if max(left) > 0:
        parts.append(f"at most {_bare(name, max(left))} free on one node")

    return ", ".join(parts)


def _held(name: str, places: Sequence[Node], cluster: Cluster) -> Iterator[_Held]:
    """Yield how much of a resource runs hold on `places`, if they hold any."""
    for holding in cluster.holdings:
        of_run = cluster.started.get(holding.run, {})
        by_tasks = 0.0
        tasks = 0.0
        started = 0.0
        for node in nodes.names_of(places):
            amounts = holding.nodes.get(node, {})
            if amounts.get(name):
                by_tasks += amounts[name]
                tasks += amounts["tasks"]
            started += of_run.get(node, {}).get(name, 0.0)

        if by_tasks or started:
            yield _Held(holding.run, by_tasks + started, int(tasks), has_started=started > 0)


def _bare(name: str, value: float) -> str:
    """Return an amount without its unit; memory as GiB."""
    if name == "memory":
        return f"{round(value / 2**30, 2):g}"
    return f"{round(value, 3):g}"


def _only(task: Task, name: str) -> Task:
    """Return a task that asks only for its amount of the resource `name`."""
    others: dict[str, Any] = {key: 0 for ray_name, key in RESOURCES.items() if ray_name != name}
    custom = {key: amount for key, amount in task.custom.items() if key == name}
    return replace(task, **others, custom=custom)


# Seconds. Once no task has started or ended for this long, an event says why tasks wait.
_QUIET = 5.0
_EVERY = 1.0
_MOST_LINES = 3


class WaitingWatch:
    """Publishes this run's holdings each second, and writes why tasks wait."""

    def __init__(self, plan: Plan, holdings: Holdings, stream: EventStream) -> None:
        self._plan = plan
        self._stream = stream
        self.holdings = holdings
        self._said = ""
        self._known: set[tuple[Any, ...]] = set()
        self._next = 0.0
        self._kept: dict[str, float] = {}

    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def look(
        self,
        lines: Iterable[Sequence[Unit]],
        live: Iterable[Live],
        alive: Sequence[Node],
        *,
        ended: Mapping[State, int],
        idle: float,
        actors: Mapping[str, float],
    ) -> None:
        """Publish what `live` attempts hold, and write why tasks wait.

        The reason is written only if the run is idle for _QUIET seconds.

        `lines`: the queue's units by shape. `ended`: how many tasks have ended,
        by state. `idle`: seconds since an attempt began or ended. `actors`:
        amounts to keep free for tasks' actors.
        """
        self._next = time.monotonic() + _EVERY
        started = [attempt for attempt in live if attempt.record.is_started]
        held = by_node((attempt.record.node, attempt.taken) for attempt in started)
        unplaced = []
        for attempt in live:
            if not (attempt.record.is_started or attempt.record.is_ready):
                unplaced.append(attempt.task)

        waiting = _waiting(lines, unplaced)
        counts = {"running": len(started), "waiting": sum(line.count for line in waiting)}
        self.holdings.publish(tasks=counts, ended=ended, nodes=held, actors=actors)

        if actors != self._kept:
            self._kept = dict(actors)
            room = {key: actors.get(name, 0) for name, key in RESOURCES.items()}
            self._stream.write(KeptFree(room))

        if idle < _QUIET or not waiting:
            self._said = ""
            return

        this_run = Holding(self._plan.run, held, actors)
        self._explain(waiting[:_MOST_LINES], alive, this_run, idle=idle)

    def publish_soon(self) -> None:
        self._next = 0.0

    def _explain(
        self, waiting: Iterable[Line], alive: Sequence[Node], this_run: Holding, *, idle: float
    ) -> None:
        holdings = [this_run, *self.holdings.read_others()]
        of_drivers = drivers.held(drivers.TheRay(), {node.node_id: node.name for node in alive})
        cluster = Cluster(alive, state.available_resources_per_node(), holdings, of_drivers)
        environment = self._plan.runtime_env or {}
        reasons = []
        for line in waiting:
            reason = explain(line, self._plan.gate, cluster, run=self._plan.run)
            reason = reason or installing(line, environment, seconds=idle)
            if reason is not None:
                reasons.append(reason)
        self._say(reasons)

    def _say(self, reasons: Sequence[Reason]) -> None:
        text = "; ".join(reason.text for reason in reasons)
        if not text or text == self._said:
            return

        self._said = text
        key = tuple((reason.needs, reason.holders) for reason in reasons)
        tasks = 0
        needs = []
        holders: set[str] = set()
        for reason in reasons:
            tasks += reason.tasks
            needs.append(reason.needs)
            holders.update(reason.holders)

        again = key in self._known
        waiting = Waiting(text, tasks=tasks, needs=needs, holders=sorted(holders), again=again)
        self._stream.write(waiting)
        self._known.add(key)


def _waiting(lines: Iterable[Sequence[Unit]], submitted: Iterable[Task]) -> list[Line]:
    """Return the tasks that have not started, one Line for each shape."""
    by_shape: dict[Shape, Line] = {}
    for units in lines:
        if units:
            tasks = units[0].tasks
            by_shape[tasks[0].shape] = Line(sum(len(unit.tasks) for unit in units), tasks)
    for task in submitted:
        line = by_shape.get(task.shape, Line(0, (task,)))
        by_shape[task.shape] = replace(line, count=line.count + 1, is_submitted=True)
    return list(by_shape.values())
