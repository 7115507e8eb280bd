"""Reports the resources that tasks' commands silently wait for in Ray."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import ray
from ray.core.generated import autoscaler_pb2

from trainyard_runner.head.drivers import Connected
from trainyard_runner.wire import fit
from trainyard_runner.wire.events import DriversWaiting, Event
from trainyard_runner.wire.plan import Task

_EVERY = 5.0
# Ray needs some seconds to start workers, and an autoscaler needs some to add nodes.
_PATIENCE = 10.0

Shape = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Demand:
    """Ray's pending requests, counted by shape, and the cluster's resources.

    `requests`: Ray tasks and actors. `groups`: placement groups, by the sum of
    their bundles. `free` and `total` are sums over all nodes.
    """

    requests: Mapping[Shape, int]
    groups: Mapping[Shape, int]
    free: Mapping[str, float]
    total: Mapping[str, float]


def ask() -> Demand:
    """Ask Ray for all drivers' pending requests and the nodes' resources."""
    reply = autoscaler_pb2.GetClusterResourceStateReply()
    reply.ParseFromString(ray._private.worker.global_worker.gcs_client.get_cluster_resource_state())
    found = reply.cluster_resource_state
    requests: Counter[Shape] = Counter()
    groups: Counter[Shape] = Counter()
    free: Counter[str] = Counter()
    total: Counter[str] = Counter()

    for pending in found.pending_resource_requests:
        requests[shape(pending.request.resources_bundle)] += pending.count

    for gang in found.pending_gang_resource_requests:
        bundles: Counter[str] = Counter()
        for selector in gang.bundle_selectors:
            for request in selector.resource_requests:
                bundles.update(request.resources_bundle)
        groups[shape(bundles)] += 1

    for node in found.node_states:
        free.update(node.available_resources)
        total.update(node.total_resources)

    return Demand(requests, groups, free, total)


def shape(resources: Mapping[str, float]) -> Shape:
    """Return amounts as a sorted key, without zeros.

    The internal resources of placement groups are left out, too.
    """
    amounts = []
    for name, value in resources.items():
        if value and "_group_" not in name:
            amounts.append((name, float(value)))
    return tuple(sorted(amounts))


def of_task(task: Task) -> Shape:
    return shape({name: getattr(task, field) or 0.0 for name, field in fit.RESOURCES.items()})


def explain(demand: Demand, connected: Connected, submitted: Iterable[Task]) -> str:
    """Describe the resources that tasks' commands wait for; "" if none wait.

    `submitted`: this run's tasks that Ray has not started; their requests are
    subtracted. Ray does not name the program of a request: the text mentions
    other connected programs, if any.
    """
    runners = Counter(map(of_task, submitted))
    lines = []
    for amounts, count in demand.requests.items():
        if count > runners[amounts]:
            lines.append(_line(amounts, count - runners[amounts], "request"))
    for amounts, count in demand.groups.items():
        lines.append(_line(amounts, count, "placement group"))
    if not lines:
        return ""

    free = [_free(name, demand) for name in sorted(_resources(demand))]
    waiting = "; ".join(lines)
    return f"pending in Ray for {_programs(connected)}: {waiting}; {', '.join(free)}"


def _programs(connected: Connected) -> str:
    tasks = connected.tasks
    if len(tasks) == 1:
        named = f"task {tasks[0]}"
    else:
        named = f"one of {', '.join(tasks[:3])}"

    if len(tasks) > 3:
        named += f" and {len(tasks) - 3} more"
    if connected.has_others:
        named += ", or another program on this cluster"
    return named


def _resources(demand: Demand) -> frozenset[str]:
    shapes = [*demand.requests, *demand.groups]
    return frozenset(name for amounts in shapes for name, _ in amounts)


def _line(asked: Shape, count: int, kind: str) -> str:
    amounts = ", ".join(fit.amount(name, value) for name, value in asked) or "a free worker"
    if count > 1:
        return f"{count} {kind}s for {amounts} each"
    return f"1 {kind} for {amounts}"


def _free(name: str, demand: Demand) -> str:
    free = demand.free.get(name, 0.0)
    if name == "memory":
        free = round(free / 2**30, 2)
    return f"{free:g} of {fit.amount(name, demand.total.get(name, 0.0))} free"


class DemandWatch:
    """Writes an event once commands have waited in Ray for _PATIENCE seconds.

    Afterwards, it writes an event whenever the pending requests have changed.
    """

    def __init__(
        self,
        write: Callable[[Event], None],
        *,
        ask: Callable[[], Demand] = ask,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._ask = ask
        self._clock = clock
        self._due = 0.0
        self._since: float | None = None
        self._said = ""
        # The sets of resources that events of this wait have named. An event that names such a set
        # again has only new numbers: its `again` is true.
        self._explained: set[frozenset[str]] = set()

    def is_due(self) -> bool:
        return self._clock() >= self._due

    def look(self, connected: Callable[[], Connected], submitted: Sequence[Task]) -> None:
        """Write an event if the commands' pending requests in Ray have changed.

        Call this when `is_due`. Waits shorter than _PATIENCE seconds are not
        reported. `connected` asks Ray which tasks have drivers. `submitted`:
        this run's tasks that Ray has not started.
        """
        self._due = self._clock() + _EVERY
        found = connected()
        text = ""
        resources: frozenset[str] = frozenset()
        if found.tasks:
            demand = self._ask()
            text = explain(demand, found, submitted)
            resources = _resources(demand)

        if not text:
            self._since = None
        elif self._since is None:
            self._since = self._clock()

        has_waited = self._since is not None and self._clock() - self._since >= _PATIENCE
        if not has_waited:
            text = ""
        if text != self._said:
            self._write(DriversWaiting(text, again=resources in self._explained))
            self._said = text
            self._explained.add(resources)
        if not text:
            self._explained = set()
