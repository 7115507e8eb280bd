"""One node of Ray, and how many of a task fit on it. Pure: the command line asks it too, and may have no Ray."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from trainyard_runner.plan import Task

GROUP_LABEL = "ray.io/node-group"
NODE_LABEL = "ray.io/node-id"
HEAD = "node:__internal_head__"
# How much a node has of what nothing is known about.
UNLIMITED = 2**62


@dataclass(frozen=True)
class Node:
    """One living Ray node."""

    node_id: str
    name: str
    group: str | None
    address: str
    resources: dict[str, float] = field(default_factory=dict)

    @property
    def gpus(self) -> float:
        return self.resources.get("GPU", 0.0)

    @property
    def is_head(self) -> bool:
        return HEAD in self.resources


def slots(task: Task, nodes: Iterable[Node]) -> int:
    """Return how many of a task fit on the nodes side by side, if nothing else runs."""
    return sum(_on_one(task, node) for node in nodes)


def _on_one(task: Task, node: Node) -> int:
    if task.node_name not in (None, node.name) or task.node_group not in (None, node.group):
        return 0
    wanted = {"CPU": task.cpus, "GPU": task.gpus, "memory": task.memory or 0}
    # Without any request a node takes as many as it has CPUs; Ray itself would take all at once.
    fits = [int(node.resources.get(name, 0.0) / amount + 1e-9) for name, amount in wanted.items() if amount]
    return min(fits) if fits else max(1, int(node.resources.get("CPU", 1)))
