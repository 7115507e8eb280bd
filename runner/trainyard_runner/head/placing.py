"""Asks Ray for its nodes, and builds the options of Ray tasks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from trainyard_runner.wire.nodes import GROUP_LABEL, NODE_LABEL, Node, amounts, called, slots
from trainyard_runner.wire.plan import Task
from trainyard_runner.wire.shares import Alike

_LOOK_EVERY = 5.0
_LOOK_SOON = 1.0


class NodeMissingError(Exception):
    """A task's node or group is missing, or its gang does not fit now."""


def alive() -> tuple[Node, ...]:
    """Ask Ray for its living nodes, the head first, then by name."""
    found = [_node(raw) for raw in ray.nodes() if raw["Alive"]]
    return tuple(sorted(found, key=lambda node: (not node.is_head, node.name)))


class LivingNodes:
    """The living nodes, as Ray last reported them."""

    def __init__(self) -> None:
        self.known: Sequence[Node] = ()
        self._due = 0.0

    def is_due(self) -> bool:
        return time.monotonic() >= self._due

    def look(self) -> bool:
        """Ask Ray for its nodes; return whether they changed."""
        self._due = time.monotonic() + _LOOK_EVERY
        found = alive()
        if found == self.known:
            return False
        self.known = found
        return True

    def look_soon(self) -> None:
        self._due = min(self._due, time.monotonic() + _LOOK_SOON)


def options(
    task: Task,
    nodes: Sequence[Node],
    *,
    has_selectors: bool,
    turn: int = 0,
    avoided: frozenset[str] = frozenset(),
    among: Alike | None = None,
) -> dict[str, Any]:
    """Return the options of one Ray task: its resources, and where it runs.

    `avoided`: ids of nodes to avoid; a task that names its node ignores them.
    `among`: nodes of one size; the task's share is already replaced by the
    amounts on these nodes. `has_selectors`: whether this Ray can select nodes
    by label. If it cannot, `turn` chooses one node, so that tasks spread.
    Raises NodeMissingError.
    """
    asked = _amounts(task)
    if task.node_name is not None:
        asked["scheduling_strategy"] = on(_named(task.node_name, nodes))
    elif has_selectors:
        labels = {}
        if avoided:
            labels[NODE_LABEL] = f"!in({','.join(sorted(avoided))})"
        labels |= _group(task)
        if among is not None:
            # The entry for avoided nodes may be overwritten here: `among` has no avoided node.
            labels |= among.labels
        if labels:
            asked["label_selector"] = labels
    elif among is not None and among.labels:
        asked["scheduling_strategy"] = on(among.nodes[turn % len(among.nodes)])
    elif avoided:
        others = [node for node in nodes if node.node_id not in avoided and slots(task, [node])]
        chosen = others[turn % len(others)]
        asked["scheduling_strategy"] = NodeAffinitySchedulingStrategy(chosen.node_id, soft=True)
    elif task.node_group is not None:
        members = [node for node in nodes if node.group == task.node_group]
        if not members:
            raise NodeMissingError(f"no node of group {task.node_group!r} is in the cluster")
        asked["scheduling_strategy"] = on(members[turn % len(members)])

    return asked


def in_bundle(group: PlacementGroup, index: int, task: Task) -> dict[str, Any]:
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
    return {**_amounts(task), "scheduling_strategy": strategy}


def bundle(task: Task) -> dict[str, float]:
    """Return a task's bundle in a placement group; Ray refuses empty ones."""
    return amounts(task) or {"CPU": 0.001}


def bundle_labels(task: Task, nodes: Sequence[Node], *, among: Alike | None) -> dict[str, str]:
    if task.node_name is not None:
        return {NODE_LABEL: _named(task.node_name, nodes).node_id}
    labels = _group(task)
    if among is not None:
        labels |= among.labels
    return labels


def _amounts(task: Task) -> dict[str, Any]:
    asked: dict[str, Any] = {"num_cpus": task.cpus, "num_gpus": task.gpus}
    if task.custom:
        asked["resources"] = dict(task.custom)
    if task.memory:
        asked["memory"] = task.memory
    return asked


def _group(task: Task) -> dict[str, str]:
    if task.node_group is not None:
        return {GROUP_LABEL: task.node_group}
    return {}


def _named(name: str, nodes: Sequence[Node]) -> Node:
    found = called(name, nodes)
    if not found:
        raise NodeMissingError(f"node {name!r} is not in the cluster")
    return found[0]


def on(node: Node) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node_id=node.node_id, soft=False)


def _node(raw: dict[str, Any]) -> Node:
    labels = raw.get("Labels") or {}
    address = raw["NodeManagerAddress"]
    name = raw.get("NodeName") or address
    # If a node has no name, Ray uses its address, which nodes on one machine share.
    if name == address and address.startswith("127."):
        name = raw["NodeID"][:8]

    return Node(
        raw["NodeID"],
        name,
        labels.get(GROUP_LABEL),
        address,
        dict(raw["Resources"]),
        host_name=raw.get("NodeManagerHostname") or "",
    )
