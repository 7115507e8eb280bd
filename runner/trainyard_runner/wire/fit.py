"""What fits: every task on some node, a gang as a whole; and how long a task is waited for that
fits nowhere. Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainyard_runner.wire import members, nodes
from trainyard_runner.wire.check import Check
from trainyard_runner.wire.nodes import Node
from trainyard_runner.wire.plan import Gate, Shape, Task
from trainyard_runner.wire.room import Room

LEAST = 60.0
_COUNTED = ("CPU", "GPU")
# It may be made anew on a host that has to pull the image first: 20 GB at 50 Mbit/s.
MADE_ANEW = 3600.0
_LEAST_AMOUNT = 1e-9
# Ray's resources, and what a task calls them.
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
    """Check that the tasks can ever start; None when there are none."""
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
        return _too_little(
            tasks, places, f"{len(tasks)} tasks that run together ask for {describe(total(tasks))}"
        )
    if together and not fits_together(tasks, places):
        detail = f"{len(tasks)} tasks that run together do not fit on {len(places)} nodes at once"
        return Check("room", None, False, detail, hint=_HINT)

    return Check("room", None, True, f"{len(tasks)} task{'s' if len(tasks) != 1 else ''} fit")


def _unknown_place(task: Task, places: Sequence[Node], gate: Gate) -> Check | None:
    """Check that the node or group that a task names is there, and is one; None if so."""
    groups = list(dict.fromkeys(node.group or "" for node in places))
    if task.node_group and task.node_group not in groups:
        detail = (
            f"task {task.name!r} is to run on group {task.node_group}, and there are "
            f"{', '.join(groups)}"
        )
        return Check("room", None, False, detail, hint=_HINT)

    if not task.node_name:
        return None

    meant = nodes.called(task.node_name, places)
    if len(meant) == 1:
        return None

    names = ", ".join(node.name for node in meant or places)
    if meant:
        there = f"{len(meant)} nodes are called so: {names}"
    else:
        there = f"there are {names}"

    detail = f"task {task.name!r} is to run on node {task.node_name}, and {there}"
    if gate.names_change and not meant:
        hint = _NAMES_CHANGE
    else:
        hint = _HINT

    return Check("room", None, False, detail, hint=hint)


def _too_little(tasks: Sequence[Task], places: Sequence[Node], asked: str) -> Check:
    """Say what the cluster as a whole lacks for tasks and what they start through Ray."""
    return Check("room", None, False, f"{asked}; {_in_total(tasks, places)}", hint=_ACTORS)


def _in_total(tasks: Sequence[Task], places: Sequence[Node]) -> str:
    has = [amount(name, _in_all(name, places)) for name in lacking(tasks, places)]
    return f"the cluster has {', '.join(has)} in all"


def lacking(
    tasks: Sequence[Task], places: Sequence[Node], taken: Mapping[str, float] | None = None
) -> list[str]:
    """Return the resources of which there is too little for tasks and the room that they want free.

    It counts the nodes together: Ray places what a task starts wherever there is room. `taken` is
    what others hold or want free.
    """
    wanted = total(tasks)
    short = []
    for name, field in RESOURCES.items():
        asked = (getattr(wanted, field) or 0) + getattr(wanted.actors, field)
        if asked and asked > _in_all(name, places) - (taken or {}).get(name, 0.0) + _LEAST_AMOUNT:
            short.append(name)
    return short


def total(tasks: Sequence[Task]) -> Task:
    """Return a task that asks for as much as all of these."""
    amounts: dict[str, Any] = {
        field: sum(getattr(task, field) or 0 for task in tasks) for field in RESOURCES.values()
    }
    actors = {
        field: sum(getattr(task.actors, field) for task in tasks) for field in RESOURCES.values()
    }
    custom: Counter[str] = Counter()
    for task in tasks:
        custom.update(task.custom)
    return replace(tasks[0], **amounts, custom=custom, actors=Room(**actors))


def _in_all(name: str, places: Sequence[Node]) -> float:
    return sum(node.resources.get(name, 0.0) for node in places)


def describe(task: Task) -> str:
    """Return what a task asks for, in words."""
    if task.share is not None:
        asked = _share(task, task.share)
    else:
        asked = _amounts(task)
    for name, value in task.custom.items():
        asked.append(amount(name, value))
    asked += [f"node {task.node_name}"] if task.node_name else []
    asked += [f"a node of group {task.node_group}"] if task.node_group else []
    return ", ".join(asked) + (
        f", with {in_words(task.actors)} free for its actors" if task.actors else ""
    )


def in_words(amounts: Room) -> str:
    all_of_them = {name: getattr(amounts, field) for name, field in RESOURCES.items()}
    return " and ".join(amount(name, value) for name, value in all_of_them.items() if value)


def _share(task: Task, share: float) -> list[str]:
    how_much = "all" if share == 1 else f"{share:.4g}"
    return [f"{how_much} of a node with GPUs" if task.on_gpus else f"{how_much} of a node"]


def _amounts(task: Task) -> list[str]:
    has_others = task.gpus or task.memory or task.custom
    if task.cpus or not has_others:
        asked = [amount("CPU", task.cpus)]
    else:
        asked = []
    asked += [amount("GPU", task.gpus)] if task.gpus else []
    return asked + ([amount("memory", task.memory)] if task.memory else [])


def amount(resource: str, value: float) -> str:
    if resource == "memory":
        return f"{round(value / 2**30, 2):g} GiB"
    return f"{value:g} {resource}{'s' * (value != 1 and resource in _COUNTED)}"


def largest(task: Task, places: Sequence[Node]) -> str:
    names = ["CPU", "GPU", *(["memory"] if task.memory else []), *task.custom]
    most = {
        name: max((node.resources.get(name, 0) for node in places), default=0) for name in names
    }
    known = [amount(name, value) for name, value in most.items() if value < nodes.UNLIMITED]
    return f"the largest node has {', '.join(known)}"


def fits_together(tasks: Sequence[Task], places: Sequence[Node]) -> bool:
    """Say whether all fit at once."""
    return fitted(tasks, places) is not None


def fitted(tasks: Sequence[Task], places: Sequence[Node]) -> list[Node] | None:
    """Return a node for each task so that all fit at once, or None.

    Place the largest first, each on the first node with room, as Ray's PACK does.
    """
    free = [dict(node.resources) for node in places]
    found: dict[int, Node] = {}
    order = sorted(
        range(len(tasks)), key=lambda n: (-tasks[n].gpus, -(tasks[n].share or 0), -tasks[n].cpus)
    )
    for number in order:
        task = tasks[number]
        for node, left in zip(places, free, strict=True):
            if not nodes.slots(task, [nodes.with_free(node, left)]):
                continue
            for name, amount in nodes.wanted(task, node).items():
                left[name] = left.get(name, 0) - amount
            found[number] = node
            break
        else:
            return None

    return [found[number] for number in range(len(tasks))]


def patience(task: Task, gate: Gate, alive: Sequence[Node]) -> float:
    """Return for how many seconds without any progress a node that has what a task asks for is
    waited for.
    """
    later = members.later(gate, alive)
    is_to_grow = nodes.slots(task, later) or (task.actors and has_all(task, [*alive, *later]))
    if is_to_grow:
        return math.inf
    return without_growth(task, gate, alive)


def without_growth(task: Task, gate: Gate, alive: Sequence[Node]) -> float:
    """Return the same where Ray does not know what the task waits for: no autoscaler adds a node
    for it.
    """
    again = members.made_anew(gate, alive)
    is_to_return = nodes.slots(task, again) or (
        task.actors and again and has_all(task, [*alive, *again])
    )
    return MADE_ANEW if is_to_return else LEAST


def has_all(task: Task, places: Sequence[Node]) -> bool:
    """Say whether a task fits on a node, and all of them together have what it wants free."""
    return bool(nodes.slots(task, places)) and not lacking([task], places)


def missing(task: Task, gate: Gate, alive: Sequence[Node]) -> str:
    """Say why there is no node for a task: whoever adds it may not be able to."""
    if nodes.slots(task, members.later(gate, alive)):
        return "Ray's autoscaler has not added a node with that yet"
    if nodes.slots(task, members.made_anew(gate, alive)):
        return "the node that was lost has not been replaced yet"
    if nodes.slots(task, alive):
        return _in_total([task], alive)
    return f"no node has that; {largest(task, alive)}"


def never(task: Task, alive: Sequence[Node]) -> str:
    """Say why a task is given up, for which nothing comes."""
    if nodes.slots(task, alive):
        return f"it asks for {describe(task)}; {_in_total([task], alive)}"
    return f"no node of the cluster has what it asks for ({describe(task)}); {largest(task, alive)}"
