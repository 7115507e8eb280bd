"""The cluster as Ray sees it now, and what fits on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import ray

GROUP_LABEL = "ray.io/node-group"
HEAD = "node:__internal_head__"


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
        """Return how many GPUs Ray counts."""
        return self.resources.get("GPU", 0.0)

    @property
    def is_head(self) -> bool:
        """Tell whether the GCS runs there."""
        return HEAD in self.resources


def alive() -> tuple[Node, ...]:
    """Ask Ray for its living nodes, the head first, then by name."""
    found = [_node(raw) for raw in ray.nodes() if raw["Alive"]]
    return tuple(sorted(found, key=lambda node: (not node.is_head, node.name)))


def slots(task: Any, nodes: Iterable[Node]) -> int:
    """Return how many of a task fit on the nodes side by side, if nothing else runs."""
    return sum(_on_one(task, node) for node in nodes)


def _on_one(task: Any, node: Node) -> int:
    if task.node_name not in (None, node.name) or task.node_group not in (None, node.group):
        return 0
    wanted = {"CPU": task.cpus, "GPU": task.gpus, "memory": task.memory or 0}
    # Without any request a node takes as many as it has CPUs; Ray itself would take all at once.
    fits = [int(node.resources.get(name, 0.0) / amount + 1e-9) for name, amount in wanted.items() if amount]
    return min(fits) if fits else max(1, int(node.resources.get("CPU", 1)))


def _node(raw: dict[str, Any]) -> Node:
    labels = raw.get("Labels") or {}
    address = raw["NodeManagerAddress"]
    name = raw.get("NodeName") or address
    # A node without a name of its own has its address as name; two of them must still be told apart.
    name = raw["NodeID"][:8] if name == address and address.startswith("127.") else name
    return Node(raw["NodeID"], name, labels.get(GROUP_LABEL), address, dict(raw["Resources"]))
