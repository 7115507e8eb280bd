"""For what tasks wait, in words: looked at while the run goes on."""

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
from trainyard_runner.wire.fit import RESOURCES
from trainyard_runner.wire.nodes import Node
from trainyard_runner.wire.outcome import State
from trainyard_runner.wire.plan import Gate, Plan, Shape, Task
from trainyard_runner.wire.stream import EventStream

_MOST_PACKAGES = 4


@dataclass(frozen=True)
class Line:
    """Tasks that need the same and have not started: how many, and those that start at once (one,
    or a gang).

    Where Ray has some of them already, `is_submitted`, room for their actors is kept.
    """

    count: int
    unit: tuple[Task, ...]
    is_submitted: bool = False


@dataclass(frozen=True)
class Cluster:
    """The living nodes, what is free on each (by its id), and what runs hold.

    `started` is what their tasks started through Ray holds, by run and node.
    """

    alive: Sequence[Node]
    free: Mapping[str, Mapping[str, float]]
    holdings: Sequence[Holding]
    started: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Reason:
    """For what tasks wait: what they need, which runs hold it, and all of it in words."""

    tasks: int
    needs: str
    holders: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class _Held:
    """How much of a resource a run holds: by so many tasks, and by what they started through
    Ray.
    """

    run: str
    value: float
    tasks: int
    has_started: bool

    def by(self) -> str:
        if self.tasks:
            tasks = [f"{self.tasks} task{'s' * (self.tasks != 1)}"]
        else:
            tasks = []
        return " and ".join(
            [*tasks, *(["what tasks started through Ray"] if self.has_started else [])]
        )


def explain(line: Line, gate: Gate, cluster: Cluster, *, run: str) -> Reason | None:
    """Return for what tasks of `run` wait; None if there is room for them, and Ray only has to
    start them.
    """
    line = replace(line, unit=tuple(in_numbers(task, cluster.alive) for task in line.unit))
    needs = fit.describe(fit.total(line.unit))
    if len(line.unit) > 1:
        who = f"{line.count} tasks that run together wait for {needs} in all"
    else:
        if line.count == 1:
            who = f"1 task waits for {needs}"
        else:
            who = f"{line.count} tasks wait for {needs} each"

    if not fit.fits_together(line.unit, cluster.alive) or fit.lacking(line.unit, cluster.alive):
        task = next(
            (task for task in line.unit if not nodes.slots(task, cluster.alive)), line.unit[0]
        )
        return Reason(line.count, needs, (), f"{who}: {fit.missing(task, gate, cluster.alive)}")

    if line.is_submitted:
        short = []
    else:
        short = kept_free(line.unit, cluster.alive, cluster.holdings)

    if short:
        kept = [_kept(name, cluster, run=run) for name in short]
        keepers = tuple(
            each.run for each in cluster.holdings if any(each.all_of(name) for name in short)
        )
        return Reason(line.count, needs, keepers, f"{who}: {'; '.join(kept)}")

    places = [
        node for node in cluster.alive if any(nodes.slots(task, [node]) for task in line.unit)
    ]
    free = [nodes.with_free(node, cluster.free.get(node.node_id, {})) for node in places]
    if fit.fits_together(line.unit, free):
        return None

    asked = list(dict.fromkeys(name for task in line.unit for name in nodes.amounts(task)))
    short = []
    for name in asked:
        if not fit.fits_together([_only(task, name) for task in line.unit], free):
            short.append(name)

    held = {name: list(_held(name, places, cluster)) for name in short or asked}
    holders = dict.fromkeys(each.run for found in held.values() for each in found)
    parts = [_in_use(name, places, free, found, run=run) for name, found in held.items()]
    return Reason(line.count, needs, tuple(holders), f"{who}: {'; '.join(parts)}")


def installing(line: Line, runtime_env: Mapping[str, Any], *, seconds: float) -> Reason | None:
    """Return the reason of tasks that have room and do not start: their packages. None where Ray
    installs none.
    """
    packages: list[str] = []
    for kind in ("uv", "pip"):
        asked = runtime_env.get(kind) or []
        packages += asked if isinstance(asked, list) else asked.get("packages", [])

    if isinstance(runtime_env.get("conda"), dict):
        packages.append("a conda environment")

    if not packages:
        return None

    # A wheel of the job has a path of Ray's.
    named = [name.rpartition("/")[2] for name in packages[:_MOST_PACKAGES]]
    if len(packages) > len(named):
        more = f" and {len(packages) - len(named)} more"
    else:
        more = ""

    if line.count == 1:
        who = "1 task waits"
    else:
        who = f"{line.count} tasks wait"

    if seconds >= 60:
        since = f", for {int(seconds // 60)} min"
    else:
        since = ""

    text = (
        f"{who} for Ray, which first installs {', '.join(named)}{more} where a node lacks "
        f"them{since}"
    )

    return Reason(line.count, "packages", (), text)


def _kept(name: str, cluster: Cluster, *, run: str) -> str:
    """Say who holds a resource or wants it free."""
    taken = {each.run: each.all_of(name) for each in cluster.holdings if each.all_of(name)}
    by = []
    for each, value in taken.items():
        by.append(f"{_bare(name, value)} by {'this run' if each == run else f'run {each}'}")
    total = sum(node.resources.get(name, 0.0) for node in cluster.alive)
    return ", ".join(
        [
            f"{_bare(name, sum(taken.values()))} of {fit.amount(name, total)} in use or kept free",
            *by,
        ]
    )


def _in_use(
    name: str,
    places: Sequence[Node],
    free: Sequence[Node],
    held: Sequence[_Held],
    *,
    run: str,
) -> str:
    total = sum(node.resources.get(name, 0) for node in places)
    left = [node.resources.get(name, 0) for node in free]
    used = total - sum(left)
    # Ray counts in ten-thousandths; the holders' files are a moment older than what is free.
    others = used - sum(each.value for each in held)
    by = []

    for each in held:
        by.append(
            f"{_bare(name, each.value)} by "
            f"{'this run' if each.run == run else f'run {each.run}'} ({each.by()})"
        )

    by += [f"{_bare(name, others)} by others"] if others > total / 1000 else []
    # What is free, but not on one node.
    if max(left) > 0:
        spare = [f"at most {_bare(name, max(left))} free on one node"]
    else:
        spare = []

    return ", ".join([f"{_bare(name, used)} of {fit.amount(name, total)} in use", *by, *spare])


def _held(name: str, places: Sequence[Node], cluster: Cluster) -> Iterator[_Held]:
    """Yield who holds how much of a resource on some nodes, and by what."""
    here = [node.name for node in places]
    for holding in cluster.holdings:
        own = [holding.nodes[node] for node in here if holding.nodes.get(node, {}).get(name)]
        of_run = cluster.started.get(holding.run, {})
        started = sum(of_run.get(node, {}).get(name, 0.0) for node in here)
        if own or started:
            tasks = int(sum(there["tasks"] for there in own))
            yield _Held(
                holding.run, sum(there[name] for there in own) + started, tasks, started > 0
            )


def _bare(name: str, value: float) -> str:
    return f"{round(value / 2**30, 2) if name == 'memory' else round(value, 3):g}"


def _only(task: Task, name: str) -> Task:
    others: dict[str, Any] = {key: 0 for each, key in RESOURCES.items() if each != name}
    return replace(
        task, **others, custom={key: amount for key, amount in task.custom.items() if key == name}
    )


# Nothing has started for so long: then it is worth a line for what the rest waits.
_QUIET = 5.0
_EVERY = 1.0
_MOST_LINES = 3


class Watch:
    """Looks at the cluster once a second while tasks wait, and writes down what this run holds when
    that changes.
    """

    def __init__(self, plan: Plan, holdings: Holdings, stream: EventStream) -> None:
        self._plan = plan
        self._stream = stream
        self.holdings = holdings
        self._said = ""
        self._known: set[tuple[Any, ...]] = set()
        self._next = 0.0
        self._kept: dict[str, float] = {}

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
        """Publish what `live` attempts hold; after some idle seconds also say for what the rest
        waits, in `lines`.

        `actors` is what tasks want free for what they start through Ray.
        """
        if time.monotonic() < self._next:
            return

        self._next = time.monotonic() + _EVERY
        started = [attempt for attempt in live if attempt.record.is_started]
        held = by_node((attempt.record.node, attempt.taken) for attempt in started)
        unplaced = []

        for attempt in live:
            if not (attempt.record.is_started or attempt.record.is_ready):
                unplaced.append(attempt.task)

        lacking = _waiting(lines, unplaced)
        counts = {"running": len(started), "waiting": sum(line.count for line in lacking)}
        self.holdings.publish(tasks=counts, ended=ended, nodes=held, actors=actors)

        if actors != self._kept:
            self._kept = dict(actors)
            self._stream.write(
                "kept-free", room={key: actors.get(name, 0) for name, key in RESOURCES.items()}
            )

        if idle < _QUIET or not lacking:
            self._said = ""
            return

        own = Holding(self._plan.run, held, actors)
        holdings = [own, *self.holdings.read_others()]
        of_drivers = drivers.held(drivers.TheRay(), {node.node_id: node.name for node in alive})
        cluster = Cluster(alive, state.available_resources_per_node(), holdings, of_drivers)
        reasons = []

        for line in lacking[:_MOST_LINES]:
            reasons.append(
                explain(line, self._plan.gate, cluster, run=self._plan.run)
                or installing(line, self._plan.runtime_env or {}, seconds=idle)
            )

        self._say([reason for reason in reasons if reason])

    def publish_soon(self) -> None:
        self._next = 0.0

    def _say(self, reasons: Sequence[Reason]) -> None:
        text = "; ".join(reason.text for reason in reasons)
        if not text or text == self._said:
            return

        self._said = text
        key = tuple((reason.needs, *reason.holders) for reason in reasons)
        self._stream.write(
            "waiting",
            tasks=sum(reason.tasks for reason in reasons),
            needs=[reason.needs for reason in reasons],
            holders=sorted({holder for reason in reasons for holder in reason.holders}),
            again=key in self._known,
            text=text,
        )

        self._known.add(key)


def _waiting(lines: Iterable[Sequence[Unit]], submitted: Iterable[Task]) -> list[Line]:
    """Return the tasks that have not started, those of one shape together."""
    found: dict[Shape, Line] = {}
    for line in filter(None, lines):
        found[line[0].tasks[0].shape] = Line(sum(len(unit.tasks) for unit in line), line[0].tasks)
    for task in submitted:
        known = found.get(task.shape, Line(0, (task,)))
        found[task.shape] = replace(known, count=known.count + 1, is_submitted=True)
    return list(found.values())
