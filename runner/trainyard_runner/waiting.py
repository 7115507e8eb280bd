"""For what tasks wait: what they need is held by somebody, or no node has it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainyard_runner import nodes, room, stuck
from trainyard_runner.nodes import Node
from trainyard_runner.plan import Gate, Task

# Ray's resources, and what a task calls them.
RESOURCES = {"CPU": "cpus", "GPU": "gpus", "memory": "memory"}


@dataclass(frozen=True)
class Line:
    """Tasks that need the same and have not started: how many, and those that start at once (one, or a gang)."""

    count: int
    unit: tuple[Task, ...]


@dataclass(frozen=True)
class Holding:
    """What a run holds: by node, amounts of Ray's resources, and under "tasks" by how many tasks."""

    run: str
    nodes: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Cluster:
    """The living nodes, what is free on each (by its id), and what runs hold."""

    alive: Sequence[Node]
    free: Mapping[str, Mapping[str, float]]
    holdings: Sequence[Holding]


@dataclass(frozen=True)
class Reason:
    """For what tasks wait: what they need, which runs hold it, and all of it in words."""

    tasks: int
    needs: str
    holders: tuple[str, ...]
    text: str


def explain(line: Line, gate: Gate, cluster: Cluster, *, run: str) -> Reason | None:
    """Return for what tasks of `run` wait; None if there is room for them, and Ray only has to start them."""
    needs = room.describe(_sum(line.unit))
    if len(line.unit) > 1:
        who = f"{line.count} tasks that run together wait for {needs} in all"
    else:
        who = f"1 task waits for {needs}" if line.count == 1 else f"{line.count} tasks wait for {needs} each"
    if not room.fits_together(line.unit, cluster.alive):
        task = next((task for task in line.unit if not nodes.slots(task, cluster.alive)), line.unit[0])
        return Reason(line.count, needs, (), f"{who}: {stuck.missing(task, gate, cluster.alive)}")
    places = [node for node in cluster.alive if any(nodes.slots(task, [node]) for task in line.unit)]
    free = [replace(node, resources=dict(cluster.free.get(node.node_id, {}))) for node in places]
    if room.fits_together(line.unit, free):
        return None
    asked = [name for name, field in RESOURCES.items() if any(getattr(task, field) for task in line.unit)]
    short = [name for name in asked if not room.fits_together([_only(task, name) for task in line.unit], free)]
    held = {name: _held(name, places, cluster.holdings) for name in short or asked}
    holders = dict.fromkeys(holding.run for found in held.values() for holding, _, _ in found)
    parts = [_in_use(name, places, free, found, run=run) for name, found in held.items()]
    return Reason(line.count, needs, tuple(holders), f"{who}: {'; '.join(parts)}")


def _in_use(
    name: str,
    places: Sequence[Node],
    free: Sequence[Node],
    held: Sequence[tuple[Holding, float, int]],
    *,
    run: str,
) -> str:
    total = sum(node.resources.get(name, 0) for node in places)
    left = [node.resources.get(name, 0) for node in free]
    used = total - sum(left)
    # Ray counts in ten-thousandths; the holders' files are a moment older than what is free.
    others = used - sum(value for _, value, _ in held)
    by = [
        f"{_bare(name, value)} by {'this run' if holding.run == run else f'run {holding.run}'} ({_tasks(tasks)})"
        for holding, value, tasks in held
    ]
    by += [f"{_bare(name, others)} by others"] if others > total / 1000 else []
    # What is free, but not on one node.
    spare = [f"at most {_bare(name, max(left))} free on one node"] if max(left) > 0 else []
    return ", ".join([f"{_bare(name, used)} of {room.amount(name, total)} in use", *by, *spare])


def _held(name: str, places: Sequence[Node], holdings: Sequence[Holding]) -> list[tuple[Holding, float, int]]:
    """Return who holds how much of a resource on some nodes, and with how many tasks."""
    found = []
    for holding in holdings:
        here = [holding.nodes[node.name] for node in places if holding.nodes.get(node.name, {}).get(name)]
        if here:
            found.append((holding, sum(there[name] for there in here), int(sum(there["tasks"] for there in here))))
    return found


def _bare(name: str, value: float) -> str:
    return f"{round(value / 2**30, 2) if name == 'memory' else round(value, 3):g}"


def _tasks(count: int) -> str:
    return f"{count} task{'s' * (count != 1)}"


def _only(task: Task, name: str) -> Task:
    others: dict[str, Any] = {field: 0 for key, field in RESOURCES.items() if key != name}
    return replace(task, **others)


def _sum(unit: Sequence[Task]) -> Task:
    amounts: dict[str, Any] = {field: sum(getattr(task, field) or 0 for task in unit) for field in RESOURCES.values()}
    return replace(unit[0], **amounts)
