"""A Ray node, and how many tasks fit on it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from trainyard_runner.wire.plan import ExpectedNode, Task

GROUP_LABEL = "ray.io/node-group"
NODE_LABEL = "ray.io/node-id"
HEAD = "node:__internal_head__"
# The amount of a resource that is not declared.
UNLIMITED = 2**62
# Ray counts in ten-thousandths.
_PARTS = 10_000


@dataclass(frozen=True)
class Node:
    """A Ray node, living or expected.

    `resources`: all of the node's resources, or only the free ones; `whole`
    then has all. `host_name`: the name of the node's machine, container or pod.
    `node_id`: "" before it joins.
    """

    node_id: str
    name: str
    group: str | None
    address: str
    resources: dict[str, float] = field(default_factory=dict)
    whole: dict[str, float] | None = None
    host_name: str = ""

    @property
    def total(self) -> dict[str, float]:
        if self.whole is None:
            return self.resources
        return self.whole

    @property
    def gpus(self) -> float:
        return self.resources.get("GPU", 0.0)

    @property
    def is_head(self) -> bool:
        return HEAD in self.total

    def is_called(self, name: str) -> bool:
        return bool(name) and name in (self.name, self.host_name, self.address, self.node_id)


def called(name: str, nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes that are called `name`.

    If no node has that name, these are the nodes with `name` as host name,
    address or id. Several nodes may share a host.
    """
    found = [node for node in nodes if node.is_called(name)]
    return [node for node in found if node.name == name] or found


def names_of(nodes: Iterable[Node | ExpectedNode]) -> list[str]:
    return [node.name for node in nodes]


def with_free(node: Node, free: Mapping[str, float]) -> Node:
    return replace(node, resources=dict(free), whole=node.total)


def all_with_free(nodes: Iterable[Node], free: Mapping[str, Mapping[str, float]]) -> list[Node]:
    """Return nodes with free resources as `resources`, and all as `whole`.

    `free`: resources by node id; a node without an entry has none free.
    """
    return [with_free(node, free.get(node.node_id, {})) for node in nodes]


def in_all(name: str, nodes: Iterable[Node]) -> float:
    """Sum a resource (Ray's name) over the nodes' `resources`."""
    return sum(node.resources.get(name, 0.0) for node in nodes)


def wanted(task: Task, node: Node) -> dict[str, float]:
    """Return a task's amounts on a node, by Ray's names of resources.

    A share is a part of all of the node's resources, free or not.
    """
    if task.share is None:
        return amounts(task)
    return _asked({**share_of(node.total, task.share), **task.custom})


def amounts(task: Task) -> dict[str, float]:
    """Return the nonzero amounts of a task that has no share."""
    memory = float(task.memory or 0)
    return _asked({"CPU": task.cpus, "GPU": task.gpus, "memory": memory, **task.custom})


def _asked(amounts: Mapping[str, float]) -> dict[str, float]:
    return {name: amount for name, amount in amounts.items() if amount}


def share_of(total: Mapping[str, float], share: float) -> dict[str, float]:
    """Return a share of a node's CPUs, GPUs and memory, rounded down.

    More than one GPU is rounded down to a whole number, because Ray rejects 1.5
    GPUs.
    """
    gpus = _rounded_down(total.get("GPU", 0.0) * share)
    if gpus > 1:
        gpus = math.floor(gpus)
    return {
        "CPU": _rounded_down(total.get("CPU", 0.0) * share),
        "GPU": gpus,
        "memory": math.floor(total.get("memory", 0.0) * share),
    }


def _rounded_down(amount: float) -> float:
    # The product is first rounded to 3 digits: a third of three may be slightly below 1 as a float.
    return math.floor(round(amount * _PARTS, 3)) / _PARTS


def slots(task: Task, nodes: Iterable[Node]) -> int:
    """Return how many such tasks fit the nodes' `resources` at once."""
    return sum(_on_one(task, node) for node in nodes)


def _on_one(task: Task, node: Node) -> int:
    if task.node_name is not None and not node.is_called(task.node_name):
        return 0
    if task.node_group not in (None, node.group):
        return 0
    if task.share is not None and not _may_be_shared(task, node):
        return 0

    fits = []
    for name, amount in wanted(task, node).items():
        fits.append(_fitting(name, amount, node.resources.get(name, 0.0)))
    if fits:
        return min(fits)
    # A task without needs counts as one CPU, because Ray would start any number of such tasks.
    return max(1, int(node.resources.get("CPU", 1)))


def _may_be_shared(task: Task, node: Node) -> bool:
    """Return whether a task may get a share of a node.

    The node must have CPUs or GPUs; with the task's `on_gpus`, it must have
    GPUs.
    """
    if not (node.node_id or node.total.get("CPU")):
        # The size of a future node without declared CPUs is unknown.
        return False
    if task.on_gpus:
        return bool(node.total.get("GPU"))
    return bool(node.total.get("CPU") or node.total.get("GPU"))


def _fitting(name: str, amount: float, free: float) -> int:
    if name == "GPU" and amount < 1:
        # A fraction must fit on a single GPU: 0.6 fits once on each GPU.
        whole, rest = divmod(free, 1)
        return int(whole) * int(1 / amount + 1e-9) + int(rest / amount + 1e-9)
    return int(free / amount + 1e-9)
