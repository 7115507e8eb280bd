"""The last rung: every task fits on some node, and a gang fits as a whole. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainyard_runner import members, nodes
from trainyard_runner.nodes import Node
from trainyard_runner.plan import Gate, Task
from trainyard_runner.rungs import Check

_HINT = "Ask for less in the job file (resources, node), or make larger nodes in the cluster file."
_NAMES_CHANGE = "Nodes of this cluster get their names as they are made: say `node: {group: ...}` in the job file."


def room(tasks: Sequence[Task], gate: Gate, alive: Sequence[Node], *, together: bool) -> Check | None:
    """Check that the tasks can ever start; None when there are none."""
    if not tasks:
        return None
    places = [*alive, *members.later(gate, alive)]
    for task in {task.shape: task for task in tasks}.values():
        if task.node_name and task.node_name not in {node.name for node in places}:
            there = ", ".join(node.name for node in alive)
            detail = f"task {task.name!r} is to run on node {task.node_name}, and there are {there}"
            return Check("room", None, False, detail, hint=_NAMES_CHANGE if gate.names_change else _HINT)
        if not nodes.slots(task, places):
            detail = f"task {task.name!r} asks for {describe(task)}; {largest(task, places)}"
            return Check("room", None, False, detail, hint=_HINT)
    if together and not fits_together(tasks, places):
        detail = f"{len(tasks)} tasks that run together do not fit on {len(places)} nodes at once"
        return Check("room", None, False, detail, hint=_HINT)
    return Check("room", None, True, f"{len(tasks)} task{'s' if len(tasks) != 1 else ''} fit")


def describe(task: Task) -> str:
    """Return what a task asks for, in words."""
    asked = [amount("CPU", task.cpus)] if task.cpus or not (task.gpus or task.memory) else []
    asked += [amount("GPU", task.gpus)] if task.gpus else []
    asked += [amount("memory", task.memory)] if task.memory else []
    asked += [f"node {task.node_name}"] if task.node_name else []
    asked += [f"a node of group {task.node_group}"] if task.node_group else []
    return ", ".join(asked)


def amount(resource: str, value: float) -> str:
    """Return an amount of one of Ray's resources, in words."""
    if resource == "memory":
        return f"{round(value / 2**30, 2):g} GiB"
    return f"{value:g} {resource}{'s' * (value != 1)}"


def largest(task: Task, places: Sequence[Node]) -> str:
    """Say what the largest node has of what a task asks for."""
    names = ["CPU", "GPU", *(["memory"] if task.memory else [])]
    most = {name: max((node.resources.get(name, 0) for node in places), default=0) for name in names}
    return f"the largest node has {', '.join(amount(name, value) for name, value in most.items())}"


def fits_together(tasks: Sequence[Task], places: Sequence[Node]) -> bool:
    """Say whether all fit at once. Place the largest first, each on the first node with room, as Ray's PACK does."""
    free = [dict(node.resources) for node in places]
    for task in sorted(tasks, key=lambda task: (-task.gpus, -task.cpus)):
        for node, left in zip(places, free, strict=True):
            rest = Node(node.node_id, node.name, node.group, node.address, left)
            if nodes.slots(task, [rest]):
                for name, amount in (("CPU", task.cpus), ("GPU", task.gpus), ("memory", task.memory or 0)):
                    left[name] = left.get(name, 0) - amount
                break
        else:
            return False
    return True
