"""Decide whether tasks fit the nodes, and how long to wait for a node. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainyard_runner.wire import members, nodes
from trainyard_runner.wire.events import Check
from trainyard_runner.wire.nodes import Node
from trainyard_runner.wire.plan import Gate, Shape, Task
from trainyard_runner.wire.room import Room

# Seconds. If a task fits no node, an idle run waits this long for a node before the task fails.
LEAST = 60.0
_COUNTED = ("CPU", "GPU")
# Seconds. An idle run waits this long while Kubernetes recreates a lost node, because the host may
# first have to pull the image: 20 GB at 50 Mbit/s.
RECREATED = 3600.0
_LEAST_AMOUNT = 1e-9
# The fields of a task by Ray's names of resources.
RESOURCES = {"CPU": "cpus", "GPU": "gpus", "memory": "memory"}
_ACTORS = (
    "Ask for less in the job file (resources.actors), or make more or larger nodes in the "
    "cluster file."
)
_HINT = "Ask for less in the job file (resources, node), or make larger nodes in the cluster file."
_NAMES_CHANGE = (
    "Nodes of this cluster get their names as they are made: say `node: {group: "
    "...}` in the job file."
)


def room(
    tasks: Sequence[Task], gate: Gate, alive: Sequence[Node], *, together: bool
) -> Check | None:
    """Check that the tasks can ever start, on living nodes or future ones.

    Future nodes are those that an autoscaler may add. `together`: the tasks are
    a gang, and must fit at once. Returns None if there are no tasks.
    """
    if not tasks:
        return None

    places = [*alive, *members.later(gate, alive)]
    first: dict[Shape, Task] = {}
    for task in tasks:
        first.setdefault(task.shape, task)

    for task in first.values():
        unknown = _unknown_place(task, places, gate)
        if unknown is not None:
            return unknown
        if not nodes.slots(task, places):
            detail = f"task {task.name!r} asks for {describe(task)}; {largest(task, places)}"
            return Check("room", None, False, detail, hint=_HINT)
        if lacking([task], places):
            return _too_little([task], places, f"task {task.name!r} asks for {describe(task)}")

    if together and any(task.actors for task in tasks) and lacking(tasks, places):
        asked = f"{len(tasks)} tasks that run together ask for {describe(total(tasks))}"
        return _too_little(tasks, places, asked)
    if together and not fits_together(tasks, places):
        detail = f"{len(tasks)} tasks that run together do not fit on {len(places)} nodes at once"
        return Check("room", None, False, detail, hint=_HINT)

    plural = "s" if len(tasks) > 1 else ""
    return Check("room", None, True, f"{len(tasks)} task{plural} fit")


def _unknown_place(task: Task, places: Sequence[Node], gate: Gate) -> Check | None:
    """Return a failed check if a task's group or node is unknown or ambiguous.

    Returns None for a known node or group, and for a task that names none.
    """
    groups = list(dict.fromkeys(node.group or "" for node in places))
    if task.node_group and task.node_group not in groups:
        there = ", ".join(groups)
        detail = f"task {task.name!r} is to run on group {task.node_group}; the groups are {there}"
        return Check("room", None, False, detail, hint=_HINT)

    if not task.node_name:
        return None

    called_so = nodes.called(task.node_name, places)
    if len(called_so) == 1:
        return None

    names = ", ".join(nodes.names_of(called_so or places))
    there = f"the nodes are {names}"
    if called_so:
        there = f"{len(called_so)} nodes match that: {names}"
    detail = f"task {task.name!r} is to run on node {task.node_name}; {there}"
    hint = _HINT
    if gate.names_change and not called_so:
        hint = _NAMES_CHANGE
    return Check("room", None, False, detail, hint=hint)


def _too_little(tasks: Sequence[Task], places: Sequence[Node], asked: str) -> Check:
    return Check("room", None, False, f"{asked}; {_in_total(tasks, places)}", hint=_ACTORS)


def _in_total(tasks: Sequence[Task], places: Sequence[Node]) -> str:
    totals = [amount(name, nodes.in_all(name, places)) for name in lacking(tasks, places)]
    return f"the cluster has {', '.join(totals)} in all"


def lacking(
    tasks: Sequence[Task], places: Sequence[Node], taken: Mapping[str, float] | None = None
) -> list[str]:
    """Return the resources that nodes lack for tasks and their actors.

    Only sums are compared, because Ray places a task's actors on any nodes.
    `taken`: amounts in use or kept free, by Ray's names. Custom resources are
    not compared.
    """
    wanted = total(tasks)
    short = []
    for name, field in RESOURCES.items():
        asked = (getattr(wanted, field) or 0) + getattr(wanted.actors, field)
        left = nodes.in_all(name, places) - (taken or {}).get(name, 0.0)
        if asked and asked > left + _LEAST_AMOUNT:
            short.append(name)
    return short


def total(tasks: Sequence[Task]) -> Task:
    """Sum the resources of tasks and of their actors, as one task."""
    amounts: dict[str, Any] = {}
    actors = {}
    for field in RESOURCES.values():
        amounts[field] = sum(getattr(task, field) or 0 for task in tasks)
        actors[field] = sum(getattr(task.actors, field) for task in tasks)
    custom: Counter[str] = Counter()
    for task in tasks:
        custom.update(task.custom)
    return replace(tasks[0], **amounts, custom=custom, actors=Room(**actors))


def describe(task: Task) -> str:
    """Say which resources and which node or group a task asks for."""
    asked = _amounts(task)
    if task.share is not None:
        asked = [_share(task, task.share)]
    for name, value in task.custom.items():
        asked.append(amount(name, value))
    if not asked:
        asked.append(amount("CPU", 0))
    if task.node_name:
        asked.append(f"node {task.node_name}")
    if task.node_group:
        asked.append(f"a node of group {task.node_group}")
    if task.actors:
        asked.append(f"with {in_words(task.actors)} free for its actors")
    return ", ".join(asked)


def in_words(amounts: Room) -> str:
    return " and ".join(_amounts(amounts))


def _share(task: Task, share: float) -> str:
    part = "all" if share == 1 else f"{share:.4g}"
    if task.on_gpus:
        return f"{part} of a node with GPUs"
    return f"{part} of a node"


def _amounts(amounts: Task | Room) -> list[str]:
    parts = []
    for name, field in RESOURCES.items():
        value = getattr(amounts, field)
        if value:
            parts.append(amount(name, value))
    return parts


def amount(resource: str, value: float) -> str:
    if resource == "memory":
        return f"{round(value / 2**30, 2):g} GiB"
    if value != 1 and resource in _COUNTED:
        return f"{value:g} {resource}s"
    return f"{value:g} {resource}"


def largest(task: Task, places: Sequence[Node]) -> str:
    """Say how many CPUs, GPUs and other resources the largest nodes have.

    Other resources count if the task asks for them. The amounts may be of
    different nodes.
    """
    names = ["CPU", "GPU"]
    if task.memory:
        names.append("memory")
    names += task.custom

    known = []
    for name in dict.fromkeys(names):
        most = max((node.resources.get(name, 0) for node in places), default=0)
        if most < nodes.UNLIMITED:
            known.append(amount(name, most))
    return f"the largest node has {', '.join(known)}"


def fits_together(tasks: Sequence[Task], places: Sequence[Node]) -> bool:
    return fitted(tasks, places) is not None


def fitted(tasks: Sequence[Task], places: Sequence[Node]) -> list[Node] | None:
    """Return a node for each task, in order; None unless all fit at once.

    As Ray's PACK does, places larger tasks first, each on the first node with
    room.
    """
    free = [dict(node.resources) for node in places]
    chosen: dict[int, Node] = {}

    def size(number: int) -> tuple[float, float, float]:
        task = tasks[number]
        return task.gpus, task.share or 0, task.cpus

    for number in sorted(range(len(tasks)), key=size, reverse=True):
        node = _first_with_room(tasks[number], places, free)
        if node is None:
            return None
        chosen[number] = node
    return [chosen[number] for number in range(len(tasks))]


def _first_with_room(
    task: Task, places: Sequence[Node], free: Sequence[dict[str, float]]
) -> Node | None:
    """Return the first node with room; subtract the task from `free`."""
    for node, left in zip(places, free, strict=True):
        if nodes.slots(task, [nodes.with_free(node, left)]):
            for name, value in nodes.wanted(task, node).items():
                left[name] = left.get(name, 0) - value
            return node
    return None


def patience(task: Task, gate: Gate, alive: Sequence[Node]) -> float:
    """Return how many seconds an idle run waits for a node that a task fits.

    Infinity if an autoscaler may add such a node, or room for the task's
    actors; else `without_growth`.
    """
    later = members.later(gate, alive)
    if nodes.slots(task, later) or (task.actors and has_all(task, [*alive, *later])):
        return math.inf
    return without_growth(task, gate, alive)


def without_growth(task: Task, gate: Gate, alive: Sequence[Node]) -> float:
    """Return the seconds to wait for a node that no autoscaler will add.

    An autoscaler does not see a task that was not submitted to Ray. RECREATED
    if Kubernetes recreates a node that the task fits, or that has room for its
    actors; else LEAST.
    """
    recreated = members.recreated(gate, alive)
    if nodes.slots(task, recreated):
        return RECREATED
    if task.actors and recreated and has_all(task, [*alive, *recreated]):
        return RECREATED
    return LEAST


def has_all(task: Task, places: Sequence[Node]) -> bool:
    """Return whether a node has room for a task, and all for its actors."""
    return bool(nodes.slots(task, places)) and not lacking([task], places)


def missing(task: Task, gate: Gate, alive: Sequence[Node]) -> str:
    """Say why a task waits: no node fits, or its actors find no room."""
    if nodes.slots(task, members.later(gate, alive)):
        return "Ray's autoscaler has not added a node with that yet"
    if nodes.slots(task, members.recreated(gate, alive)):
        return "the node that was lost has not been replaced yet"
    if nodes.slots(task, alive):
        return _in_total([task], alive)
    return f"no node has that; {largest(task, alive)}"


def never(task: Task, alive: Sequence[Node]) -> str:
    """Say why a task is given up: no node fits, or its actors find no room."""
    if nodes.slots(task, alive):
        return f"it asks for {describe(task)}; {_in_total([task], alive)}"
    return f"no node of the cluster has what it asks for ({describe(task)}); {largest(task, alive)}"
