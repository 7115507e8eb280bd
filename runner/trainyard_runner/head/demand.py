"""What tasks' commands asked of Ray and cannot have now: said here, since a command that waits for
it is silent.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.core.generated import autoscaler_pb2

from trainyard_runner.head.drivers import Connected
from trainyard_runner.wire import fit
from trainyard_runner.wire.plan import Task

_EVERY = 5.0
# Ray takes some seconds to start workers, and an autoscaler some to add nodes.
_PATIENCE = 10.0

Shape = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Demand:
    """What waits in Ray: how often which amounts of its resources are asked for, and what nodes
    have.

    `groups` are placement groups, each with the sum of its bundles.
    """

    requests: Mapping[Shape, int]
    groups: Mapping[Shape, int]
    free: Mapping[str, float]
    total: Mapping[str, float]


def ask() -> Demand:
    """Ask the cluster that this process is connected to."""
    reply = autoscaler_pb2.GetClusterResourceStateReply()
    reply.ParseFromString(ray._private.worker.global_worker.gcs_client.get_cluster_resource_state())
    found = reply.cluster_resource_state
    requests: Counter[Shape] = Counter()
    groups: Counter[Shape] = Counter()
    free: Counter[str] = Counter()
    total: Counter[str] = Counter()

    for each in found.pending_resource_requests:
        requests[shape(each.request.resources_bundle)] += each.count

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
    """Return amounts in an order of their own; what is asked for in a placement group's place is
    not one.
    """
    return tuple(
        sorted(
            (name, float(value))
            for name, value in resources.items()
            if value and "_group_" not in name
        )
    )


def of_task(task: Task) -> Shape:
    """Return how Ray knows what a task of a run asks for."""
    return shape({name: getattr(task, field) or 0.0 for name, field in fit.RESOURCES.items()})


def explain(demand: Demand, connected: Connected, submitted: Iterable[Task]) -> str:
    """Say what tasks' commands wait for, without what the runner itself has `submitted`; "" if
    there is nothing.

    Ray does not tell whose demand it is: where programs of others are connected too, it may be
    theirs.
    """
    own = Counter(map(of_task, submitted))
    lines = [
        _line(asked, count - own[asked], "wait")
        for asked, count in demand.requests.items()
        if count > own[asked]
    ]

    lines += [
        _line(asked, count, "in placement groups wait") for asked, count in demand.groups.items()
    ]
    if not lines:
        return ""

    asked = [name for each in (*demand.requests, *demand.groups) for name, _ in each]
    left = [_free(name, demand) for name in dict.fromkeys(asked)]
    tasks = connected.tasks
    if len(tasks) == 1:
        who = f"task {tasks[0]}"
    else:
        who = f"one of {', '.join(tasks[:3])}"

    if connected.has_others:
        who += ", or another program on this cluster,"

    return f"what {who} started through Ray has no room: {'; '.join(lines)}; {', '.join(left)}"


def _line(asked: Shape, count: int, wait: str) -> str:
    amounts = ", ".join(fit.amount(name, value) for name, value in asked) or "a free worker"
    return f"{count} {wait} for {amounts}" + (" each" if count > 1 else "")


def _free(name: str, demand: Demand) -> str:
    free = demand.free.get(name, 0.0)
    if name == "memory":
        shown = f"{round(free / 2**30, 2):g}"
    else:
        shown = f"{free:g}"
    return f"{shown} of {fit.amount(name, demand.total.get(name, 0.0))} free"


class DemandWatch:
    """Writes down when what commands started through Ray waits for room, and when it does not any
    more.
    """

    def __init__(
        self,
        write: Callable[..., Any],
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

    def is_due(self) -> bool:
        return self._clock() >= self._due

    def look(self, connected: Callable[[], Connected], submitted: Sequence[Task]) -> None:
        """Look when it is due; `connected` asks who has a driver, `submitted` is what the runner
        waits for in Ray.
        """
        if not self.is_due():
            return

        self._due = self._clock() + _EVERY

        found = connected()
        if found.tasks:
            text = explain(self._ask(), found, submitted)
        else:
            text = ""

        if not text:
            self._since = None
        elif self._since is None:
            self._since = self._clock()

        is_due = self._since is not None and self._clock() - self._since >= _PATIENCE
        said = text if is_due else ""
        if said != self._said:
            self._write("drivers-waiting", text=said, again=bool(self._said))
            self._said = said
