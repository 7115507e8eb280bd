"""One node of Ray, and how many of a task fit on it. Pure: the command line asks it too, and may
have no Ray.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from trainyard_runner.wire.plan import Task

GROUP_LABEL = "ray.io/node-group"
NODE_LABEL = "ray.io/node-id"
HEAD = "node:__internal_head__"
# How much a node has of what nothing is known about.
UNLIMITED = 2**62
# Ray counts in ten-thousandths.
_PARTS = 10_000


@dataclass(frozen=True)
class Node:
    """One living Ray node. `whole` is what it has in all, where `resources` is only what is free of
    it.

    `host_name` is what its machine, container or pod calls itself.
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
        """Say whether a job means this node by a name: its own, its host's, its address, or Ray's
        id of it.
        """
        return bool(name) and name in (self.name, self.host_name, self.address, self.node_id)


def called(name: str, nodes: Iterable[Node]) -> list[Node]:
    """Return the node of that name, else those on a host that is called so: on one machine these
    are several.
    """
    found = [node for node in nodes if node.is_called(name)]
    return [node for node in found if node.name == name] or found


def with_free(node: Node, free: Mapping[str, float]) -> Node:
    """Return a node of which only so much is free."""
    return replace(node, resources=dict(free), whole=node.total)


def wanted(task: Task, node: Node) -> dict[str, float]:
    """Return how much a task takes of a node, by the names of Ray's resources."""
    if task.share is None:
        return amounts(task)
    asked = {**share_of(node.total, task.share), **task.custom}
    return {name: amount for name, amount in asked.items() if amount}


def amounts(task: Task) -> dict[str, float]:
    """Return how much a task without a share takes of any node."""
    asked = {"CPU": task.cpus, "GPU": task.gpus, "memory": float(task.memory or 0), **task.custom}
    return {name: amount for name, amount in asked.items() if amount}


def share_of(total: Mapping[str, float], share: float) -> dict[str, float]:
    """Return a share of a node's CPUs, GPUs and memory, rounded down to what Ray can give: no 1.5
    GPUs.
    """
    cpus, gpus, memory = (total.get(name, 0.0) * share for name in ("CPU", "GPU", "memory"))
    gpus = _rounded_down(gpus)
    return {
        "CPU": _rounded_down(cpus),
        "GPU": gpus if gpus < 1 else math.floor(gpus),
        "memory": math.floor(memory),
    }


def _rounded_down(amount: float) -> float:
    # A third of three is 1, although floats may say a little less.
    return math.floor(round(amount * _PARTS, 3)) / _PARTS


def slots(task: Task, nodes: Iterable[Node]) -> int:
    """Return how many of a task fit on the nodes side by side, if nothing else runs."""
    return sum(_on_one(task, node) for node in nodes)


def _on_one(task: Task, node: Node) -> int:
    if task.node_name is not None and not node.is_called(task.node_name):
        return 0
    if task.node_group not in (None, node.group):
        return 0
    if task.share is not None and not _may_be_shared(task, node):
        return 0
    asked = wanted(task, node)
    fits = [_fitting(name, amount, node.resources.get(name, 0.0)) for name, amount in asked.items()]
    # Without any request a node takes as many as it has CPUs; Ray itself would take all at once.
    if fits:
        return min(fits)
    return max(1, int(node.resources.get("CPU", 1)))


def _may_be_shared(task: Task, node: Node) -> bool:
    """Say whether a node has what a share is made of; without CPUs and GPUs it is kept free of
    tasks.
    """
    if not (node.node_id or node.total.get("CPU")):
        # It may come later, and nobody has declared its CPUs.
        return False
    if task.on_gpus:
        return bool(node.total.get("GPU"))
    return bool(node.total.get("CPU") or node.total.get("GPU"))


def _fitting(name: str, amount: float, free: float) -> int:
    if name == "GPU" and amount < 1:
        # A fraction is of one GPU: of 0.6 there is one on each.
        whole, rest = divmod(free, 1)
        return int(whole) * int(1 / amount + 1e-9) + int(rest / amount + 1e-9)
    return int(free / amount + 1e-9)
