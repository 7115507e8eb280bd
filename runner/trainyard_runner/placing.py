"""The nodes that Ray has now, and what a task asks of Ray: resources, and where to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from trainyard_runner.nodes import GROUP_LABEL, NODE_LABEL, Node, slots
from trainyard_runner.plan import Task


class NodeMissingError(Exception):
    """The node a task must run on is not in the cluster."""


def alive() -> tuple[Node, ...]:
    """Ask Ray for its living nodes, the head first, then by name."""
    found = [_node(raw) for raw in ray.nodes() if raw["Alive"]]
    return tuple(sorted(found, key=lambda node: (not node.is_head, node.name)))


def options(
    task: Task, nodes: Sequence[Node], *, has_selectors: bool, turn: int = 0, avoided: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return the options of one Ray task, kept from `avoided` nodes: others have room for it.

    `turn` spreads tasks of a group where Ray cannot select by label.
    """
    asked: dict[str, Any] = {"num_cpus": task.cpus, "num_gpus": task.gpus}
    if task.memory:
        asked["memory"] = task.memory
    if task.node_name is not None:
        asked["scheduling_strategy"] = on(_named(task.node_name, nodes))
    elif has_selectors and (avoided or task.node_group is not None):
        group = {GROUP_LABEL: task.node_group} if task.node_group is not None else {}
        asked["label_selector"] = {**group, **({NODE_LABEL: f"!in({','.join(sorted(avoided))})"} if avoided else {})}
    elif avoided:
        others = [node for node in nodes if node.node_id not in avoided and slots(task, [node])]
        asked["scheduling_strategy"] = NodeAffinitySchedulingStrategy(others[turn % len(others)].node_id, soft=True)
    elif task.node_group is not None:
        members = [node for node in nodes if node.group == task.node_group]
        if not members:
            raise NodeMissingError(f"no node of group {task.node_group!r} is in the cluster")
        asked["scheduling_strategy"] = on(members[turn % len(members)])
    return asked


def in_bundle(group: PlacementGroup, index: int, task: Task) -> dict[str, Any]:
    asked: dict[str, Any] = {"num_cpus": task.cpus, "num_gpus": task.gpus}
    if task.memory:
        asked["memory"] = task.memory
    asked["scheduling_strategy"] = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
    return asked


def bundle(task: Task) -> dict[str, float]:
    """Return a task's place in a placement group; Ray wants at least one resource in it."""
    wanted = {"CPU": task.cpus, "GPU": task.gpus, "memory": float(task.memory or 0)}
    asked = {name: amount for name, amount in wanted.items() if amount}
    return asked or {"CPU": 0.001}


def bundle_labels(task: Task, nodes: Sequence[Node]) -> dict[str, str]:
    if task.node_name is not None:
        return {NODE_LABEL: _named(task.node_name, nodes).node_id}
    return {GROUP_LABEL: task.node_group} if task.node_group is not None else {}


def _named(name: str, nodes: Sequence[Node]) -> Node:
    for node in nodes:
        if node.name == name:
            return node
    raise NodeMissingError(f"node {name!r} is not in the cluster")


def on(node: Node) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node_id=node.node_id, soft=False)


def _node(raw: dict[str, Any]) -> Node:
    labels = raw.get("Labels") or {}
    address = raw["NodeManagerAddress"]
    name = raw.get("NodeName") or address
    # A node without a name of its own has its address as name; two of them must still be told apart.
    name = raw["NodeID"][:8] if name == address and address.startswith("127.") else name
    return Node(raw["NodeID"], name, labels.get(GROUP_LABEL), address, dict(raw["Resources"]))
