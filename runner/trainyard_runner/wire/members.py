"""Says which declared nodes are missing, and which may join or leave. Pure.

With `names_change`, a recreated node gets another name, as pods of Kubernetes
do. Nodes of a group are then interchangeable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from trainyard_runner.wire.nodes import UNLIMITED, Node, names_of
from trainyard_runner.wire.plan import ExpectedNode, Gate

HEAD = "head"


def declared(gate: Gate, alive: Sequence[Node]) -> list[Node]:
    """Return those of Ray's living nodes that the cluster file declares.

    Ray may still list nodes that were just removed from the file. Without any
    declared nodes, all living nodes are returned.
    """
    if not gate.nodes:
        return list(alive)
    names = set(names_of(gate.nodes))
    groups: set[str | None] = set()
    if gate.names_change:
        groups = {node.group for node in gate.nodes}
    return [node for node in alive if node.name in names or _group(node) in groups]


def missing(gate: Gate, alive: Iterable[Node]) -> list[ExpectedNode]:
    """Return the expected nodes that are not alive, without optional ones.

    If `gate.names_change`, a living node that is optional or has a new name
    replaces a missing one of its group.
    """
    expected = gate.nodes or ()
    living = list(alive)
    names = set(names_of(living))
    lacking = [node for node in expected if not node.optional and node.name not in names]
    if not gate.names_change:
        return lacking

    # The group of each living node that may replace a missing one.
    spare_groups = [node.group for node in expected if node.optional and node.name in names]
    expected_names = set(names_of(expected))
    for living_node in living:
        if living_node.name not in expected_names:
            spare_groups.append(_group(living_node))

    left = []
    for node in lacking:
        if node.group in spare_groups:
            spare_groups.remove(node.group)
        else:
            left.append(node)
    return left


def later(gate: Gate, alive: Iterable[Node]) -> list[Node]:
    """Return the nodes that an autoscaler may add to the living ones."""
    expected = gate.nodes or ()
    optional = [node for node in expected if node.optional]
    if not gate.names_change:
        names = set(names_of(alive))
        return [_node(node) for node in optional if node.name not in names]

    # A group may have as many nodes as expected, with any names.
    room = Counter(node.group for node in expected)
    room.subtract(_group(node) for node in alive)
    added = []
    for node in optional:
        if room[node.group] > 0:
            room[node.group] -= 1
            added.append(_node(node))
    return added


def recreated(gate: Gate, alive: Iterable[Node]) -> list[Node]:
    """Return the missing nodes that Kubernetes recreates.

    Without `names_change`, there are none. Returned nodes other than the head
    have the name "", because their new names are unknown.
    """
    if not gate.names_change:
        return []
    nodes = []
    for lost in missing(gate, alive):
        if lost.group != HEAD:
            lost = replace(lost, name="")
        nodes.append(_node(lost))
    return nodes


def may_leave(gate: Gate, node: Node) -> bool:
    """Return whether an autoscaler or Kubernetes may have removed a node."""
    for expected in gate.nodes or ():
        if expected.name == node.name:
            return expected.optional
    return gate.names_change


def gpus(gate: Gate, node: Node) -> float:
    """Return a node's declared GPUs, or Ray's number if it is undeclared."""
    number = node.gpus
    for expected in gate.nodes or ():
        if expected.name == node.name:
            return expected.gpus
        if gate.names_change and expected.group == _group(node):
            number = expected.gpus
    return number


def _group(node: Node) -> str | None:
    if node.is_head:
        return HEAD
    return node.group


def _node(expected: ExpectedNode) -> Node:
    resources = {
        "CPU": expected.cpus or 0,
        "GPU": expected.gpus,
        "memory": expected.memory or UNLIMITED,
        **expected.resources,
    }
    return Node("", expected.name, expected.group, "", resources)
