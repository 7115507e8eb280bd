"""What a task asks of Ray: resources, and where to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from trainyard_runner.nodes import GROUP_LABEL, Node
from trainyard_runner.plan import Task

NODE_LABEL = "ray.io/node-id"


class NodeMissingError(Exception):
    """The node a task must run on is not in the cluster."""


def options(task: Task, nodes: Sequence[Node], *, has_selectors: bool, turn: int = 0) -> dict[str, Any]:
    """Return the options of one Ray task. `turn` spreads tasks of a group where Ray cannot select by label."""
    asked: dict[str, Any] = {"num_cpus": task.cpus, "num_gpus": task.gpus}
    if task.memory:
        asked["memory"] = task.memory
    if task.node_name is not None:
        asked["scheduling_strategy"] = _on(_named(task.node_name, nodes))
    elif task.node_group is not None and has_selectors:
        asked["label_selector"] = {GROUP_LABEL: task.node_group}
    elif task.node_group is not None:
        members = [node for node in nodes if node.group == task.node_group]
        if not members:
            raise NodeMissingError(f"no node of group {task.node_group!r} is in the cluster")
        asked["scheduling_strategy"] = _on(members[turn % len(members)])
    return asked


def in_bundle(group: PlacementGroup, index: int, task: Task) -> dict[str, Any]:
    """Return the options of a task that has its place in a placement group."""
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
    """Return the labels a bundle's node must have."""
    if task.node_name is not None:
        return {NODE_LABEL: _named(task.node_name, nodes).node_id}
    return {GROUP_LABEL: task.node_group} if task.node_group is not None else {}


def _named(name: str, nodes: Sequence[Node]) -> Node:
    for node in nodes:
        if node.name == name:
            return node
    raise NodeMissingError(f"node {name!r} is not in the cluster")


def _on(node: Node) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node_id=node.node_id, soft=False)
