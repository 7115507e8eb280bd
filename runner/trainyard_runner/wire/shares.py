"""A share of one node: of which nodes it may be, and how much of them it is. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainyard_runner.wire import fit, nodes
from trainyard_runner.wire.nodes import GROUP_LABEL, NODE_LABEL, UNLIMITED, Node
from trainyard_runner.wire.plan import Gate, Plan, Task, task_of

Size = tuple[float, float]
# Resources that are free on each node, by its id and Ray's names for them.
Free = Callable[[], Mapping[str, Mapping[str, float]]]


@dataclass(frozen=True)
class Alike:
    """Nodes with the same CPUs and GPUs. `labels` keep Ray from other nodes that have room for a
    share of these.
    """

    nodes: tuple[Node, ...]
    labels: Mapping[str, str]

    @property
    def size(self) -> Size:
        return _size(self.nodes[0])

    def taken(self, task: Task) -> Task:
        """Return a task with the CPUs, GPUs and memory that its share of one of these nodes is."""
        if task.share is None:
            return task
        # Ray measures memory, and finds a little more or less on equal machines.
        known = [node for node in self.nodes if node.node_id] or self.nodes
        memory = min(node.total.get("memory", 0.0) for node in known)
        total = {**self.nodes[0].total, "memory": 0.0 if memory >= UNLIMITED else memory}
        part = nodes.share_of(total, task.share)
        memory_part = int(part["memory"]) or None
        return replace(task, share=None, cpus=part["CPU"], gpus=part["GPU"], memory=memory_part)


@dataclass
class Asked:
    """How many shares of nodes of one size a run has asked Ray for, and how many of them have no
    place yet.
    """

    all: int = 0
    unplaced: int = 0


def settled(tasks: Iterable[Task], gate: Gate, alive: Sequence[Node]) -> tuple[Task, ...]:
    """Return tasks whose shares are of nodes with GPUs, if the cluster has some and no placement
    says otherwise.
    """
    has_gpus = any(node.gpus for node in alive) or any(node.gpus for node in gate.nodes or ())
    return tuple(replace(task, on_gpus=has_gpus and _is_anywhere(task)) for task in tasks)


def settled_plan(plan: Plan, alive: Sequence[Node]) -> Plan:
    """Return the same for all tasks of a plan, and for the one that a sweep makes its tasks of."""
    tasks = settled(plan.tasks, plan.gate, alive)
    sweep = plan.sweep
    if sweep is not None:
        (template,) = settled([task_of(0, sweep["task"])], plan.gate, alive)
        sweep = {**sweep, "task": {**sweep["task"], "on_gpus": template.on_gpus}}
    return replace(plan, tasks=tasks, sweep=sweep)


def places(alive: Sequence[Node], later: Sequence[Node]) -> list[Node]:
    """Return the nodes that there are and may be; those to come are as large as others of their
    group.
    """
    known = {node.group: node.total for node in alive}
    return [
        *alive,
        *(replace(node, resources=known.get(node.group, node.resources)) for node in later),
    ]


def alike(task: Task, places: Sequence[Node]) -> list[Alike]:
    """Return the nodes that a task's share may be of, those of one size together."""
    fitting = [node for node in places if nodes.slots(task, [node])]
    by_size: dict[Size, list[Node]] = {}
    for node in fitting:
        by_size.setdefault(_size(node), []).append(node)
    if len(by_size) < 2:
        return [Alike(tuple(members), {}) for members in by_size.values()]
    return [Alike(tuple(members), _labels(members, fitting)) for members in by_size.values()]


def chosen(
    task: Task, places: Sequence[Node], asked: Mapping[Size, Asked], free: Free
) -> Alike | None:
    """Return the nodes that Ray is asked for the next share of; None while the run has asked for
    all of them.

    `free` is called only where nodes differ: then those come first that have room now.
    """
    left = {}
    for one in alike(task, places):
        count = nodes.slots(task, one.nodes) - asked.get(one.size, Asked()).all
        if count > 0:
            left[one.size] = (count, one)

    if len(left) < 2:
        return next((one for _, one in left.values()), None)

    now = free()

    def room_now(one: Alike) -> int:
        found = nodes.slots(
            task, [nodes.with_free(node, now.get(node.node_id, {})) for node in one.nodes]
        )
        return found - asked.get(one.size, Asked()).unplaced

    return max(left.values(), key=lambda each: (room_now(each[1]), each[0]))[1]


def together(tasks: Sequence[Task], places: Sequence[Node], free: Free) -> list[Alike] | None:
    """Return the nodes for each task of a gang so that all fit at once, if they can now; None if
    they never do.
    """
    kinds = [alike(task, places) for task in tasks]
    if all(len(each) == 1 for each in kinds):
        found = fit.fitted(tasks, places)
    else:
        now = free()
        open_now = [nodes.with_free(node, now.get(node.node_id, {})) for node in places]
        found = fit.fitted(tasks, open_now) or fit.fitted(tasks, places)
    if found is None:
        return None
    return [
        next(one for one in each if one.size == _size(node))
        for each, node in zip(kinds, found, strict=True)
    ]


def _is_anywhere(task: Task) -> bool:
    return task.share is not None and task.node_name is None and task.node_group is None


def _size(node: Node) -> Size:
    return (node.total.get("CPU", 0.0), node.total.get("GPU", 0.0))


def _labels(members: Sequence[Node], fitting: Sequence[Node]) -> dict[str, str]:
    """Return what Ray selects nodes by: their groups, which an autoscaler knows, unless others are
    in them too.
    """
    groups = {node.group for node in members}
    others = {node.group for node in fitting if node not in members}
    if None in groups or groups & others:
        return {NODE_LABEL: f"in({','.join(node.node_id for node in members if node.node_id)})"}
    return {GROUP_LABEL: f"in({','.join(sorted(group for group in groups if group))})"}
