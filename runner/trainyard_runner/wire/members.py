"""Which living nodes are the cluster, which are missing, and which may still come or go. Pure.

Where a node that is made anew gets another name (`names_change`: pods of Kubernetes), any node of a
group stands for any other one of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from trainyard_runner.wire.nodes import UNLIMITED, Node
from trainyard_runner.wire.plan import ExpectedNode, Gate

HEAD = "head"


def declared(gate: Gate, alive: Sequence[Node]) -> list[Node]:
    """Return the nodes to be tested: one that was removed a moment ago is alive to Ray until it
    misses it.
    """
    if gate.nodes is None or not gate.nodes:
        return list(alive)
    names = {node.name for node in gate.nodes}
    if gate.names_change:
        groups = {node.group for node in gate.nodes}
    else:
        groups = set()
    return [node for node in alive if node.name in names or _group(node) in groups]


def missing(gate: Gate, alive: Iterable[Node]) -> list[ExpectedNode]:
    """Return the expected nodes that are not there, optional ones left out."""
    there = list(alive)
    names = {node.name for node in there}
    wanted = [node for node in gate.nodes or () if not node.optional]
    lacking = [node for node in wanted if node.name not in names]

    if not gate.names_change:
        return lacking

    taken = {node.name for node in gate.nodes or ()}
    spare = [_group(node) for node in there if node.name not in taken]
    spare += _spare_optional(gate, names)
    left = []

    for node in lacking:
        if node.group in spare:
            spare.remove(node.group)
        else:
            left.append(node)

    return left


def later(gate: Gate, alive: Iterable[Node]) -> list[Node]:
    """Return the nodes that an autoscaler may add to those that are there."""
    optional = [node for node in gate.nodes or () if node.optional]
    there = [node.name for node in alive]
    if gate.names_change:
        # As many as the group may have, less those that it has by now, whatever they are called.
        counts: dict[str | None, int] = {}
        for node in alive:
            counts[_group(node)] = counts.get(_group(node), 0) + 1
        room = {
            node.group: _most(gate, node.group) - counts.get(node.group, 0) for node in optional
        }
        optional = [node for node in optional if _take(room, node.group)]
    return [_node(node) for node in optional if gate.names_change or node.name not in there]


def made_anew(gate: Gate, alive: Iterable[Node]) -> list[Node]:
    """Return the nodes that were lost, and that somebody makes anew; nobody knows what they will be
    called.
    """
    if not gate.names_change:
        return []
    return [
        _node(one if one.group == HEAD else replace(one, name="")) for one in missing(gate, alive)
    ]


def may_leave(gate: Gate, node: Node) -> bool:
    """Say whether an autoscaler may remove a node, or another one takes its place: that it is gone
    is no failure.
    """
    if any(one.optional for one in gate.nodes or () if one.name == node.name):
        return True
    return gate.names_change and not any(
        one.name == node.name for one in gate.nodes or () if not one.optional
    )


def gpus(gate: Gate, node: Node) -> float:
    """Return how many GPUs a node was declared with; what Ray has, if nobody declared it."""
    by_name = {one.name: one.gpus for one in gate.nodes or ()}
    if gate.names_change:
        by_group = {one.group: one.gpus for one in gate.nodes or ()}
    else:
        by_group = {}
    return by_name.get(node.name, by_group.get(_group(node), node.gpus))


def _group(node: Node) -> str | None:
    return HEAD if node.is_head else node.group


def _most(gate: Gate, group: str | None) -> int:
    return sum(one.group == group for one in gate.nodes or ())


def _spare_optional(gate: Gate, names: set[str]) -> list[str | None]:
    """Return the groups of optional nodes that are there: they stand in for others of their
    group.
    """
    return [one.group for one in gate.nodes or () if one.optional and one.name in names]


def _take(room: dict[str | None, int], group: str | None) -> bool:
    room[group] -= 1
    return room[group] >= 0


def _node(one: ExpectedNode) -> Node:
    resources = {
        "CPU": one.cpus or 0,
        "GPU": one.gpus,
        "memory": one.memory or UNLIMITED,
        **one.resources,
    }
    return Node("", one.name, one.group, "", resources)
