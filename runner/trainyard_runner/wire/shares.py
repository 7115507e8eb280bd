"""Shares of nodes: the nodes that fit a task, and the share's size. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainyard_runner.wire import fit, nodes
from trainyard_runner.wire.nodes import GROUP_LABEL, NODE_LABEL, UNLIMITED, Node
from trainyard_runner.wire.plan import Gate, Plan, Task, task_of

Size = tuple[float, float]
# Returns each node's free resources: by node id, a dict with Ray's names of resources.
Free = Callable[[], Mapping[str, Mapping[str, float]]]


@dataclass(frozen=True)
class Alike:
    """Nodes with the same numbers of CPUs and GPUs.

    `labels` are Ray's label selectors, which select only these nodes among
    those that fit the task; {} if all nodes that fit have this size.
    """

    nodes: tuple[Node, ...]
    labels: Mapping[str, str]

    @property
    def size(self) -> Size:
        return _size(self.nodes[0])

    def taken(self, task: Task) -> Task:
        """Return a task with CPUs, GPUs and memory in place of its share."""
        if task.share is None:
            return task
        # The least memory counts: Ray measures memory, and equal machines differ slightly.
        known = [node for node in self.nodes if node.node_id] or self.nodes
        memory = min(node.total.get("memory", 0.0) for node in known)
        if memory >= UNLIMITED:
            memory = 0.0
        total = {**self.nodes[0].total, "memory": memory}
        part = nodes.share_of(total, task.share)
        memory_part = int(part["memory"]) or None
        return replace(task, share=None, cpus=part["CPU"], gpus=part["GPU"], memory=memory_part)


@dataclass
class Asked:
    """Numbers of Ray tasks in flight for one shape and node size."""

    all: int = 0
    unplaced: int = 0


def settled(tasks: Iterable[Task], gate: Gate, alive: Sequence[Node]) -> tuple[Task, ...]:
    """Return tasks, with `on_gpus` set for those that ask for a share.

    If the cluster has nodes with GPUs, a share must come from one of them. A
    task that names a node or group gets a share of the named node, with or
    without GPUs.
    """
    has_gpus = any(node.gpus for node in alive) or any(node.gpus for node in gate.nodes or ())
    found = []
    for task in tasks:
        is_anywhere = task.node_name is None and task.node_group is None
        on_gpus = has_gpus and task.share is not None and is_anywhere
        found.append(replace(task, on_gpus=on_gpus))
    return tuple(found)


def settled_plan(plan: Plan, alive: Sequence[Node]) -> Plan:
    """Apply `settled` to a plan's tasks and to a sweep's template."""
    tasks = settled(plan.tasks, plan.gate, alive)
    sweep = plan.sweep
    if sweep is not None:
        (template,) = settled([task_of(sweep["task"])], plan.gate, alive)
        sweep = {**sweep, "task": {**sweep["task"], "on_gpus": template.on_gpus}}
    return replace(plan, tasks=tasks, sweep=sweep)


def places(alive: Sequence[Node], later: Sequence[Node]) -> list[Node]:
    """Return living nodes, and `later` nodes that an autoscaler may add.

    A `later` node gets the resources of a living node of its group, if any.
    """
    known = {node.group: node.total for node in alive}
    found = list(alive)
    for node in later:
        found.append(replace(node, resources=known.get(node.group, node.resources)))
    return found


def alike(task: Task, places: Sequence[Node]) -> list[Alike]:
    """Return the nodes that can run a task, grouped by size."""
    fitting = [node for node in places if nodes.slots(task, [node])]
    by_size: dict[Size, list[Node]] = {}
    for node in fitting:
        by_size.setdefault(_size(node), []).append(node)

    sizes = []
    for members in by_size.values():
        labels = _labels(members, fitting) if len(by_size) > 1 else {}
        sizes.append(Alike(tuple(members), labels))
    return sizes


def chosen(
    task: Task, places: Sequence[Node], asked: Mapping[Size, Asked], free: Free
) -> Alike | None:
    """Return nodes of one size for the next task; None if no place is free.

    `places` may have nodes that an autoscaler would add. `asked`: the shape's
    Ray tasks in flight, by size. The size with the most room now is chosen.
    `free`, which asks Ray, is called only if several sizes have a place.
    """
    candidates = []
    for sized in alike(task, places):
        left = nodes.slots(task, sized.nodes) - asked.get(sized.size, Asked()).all
        if left > 0:
            candidates.append((left, sized))
    if not candidates:
        return None
    if len(candidates) == 1:
        return candidates[0][1]

    now = free()

    def rank(candidate: tuple[int, Alike]) -> tuple[int, int]:
        left, sized = candidate
        open_now = nodes.all_with_free(sized.nodes, now)
        room_now = nodes.slots(task, open_now) - asked.get(sized.size, Asked()).unplaced
        return room_now, left

    _, best = max(candidates, key=rank)
    return best


def together(tasks: Sequence[Task], places: Sequence[Node], free: Free) -> list[Alike] | None:
    """For each task of a gang, return nodes of one size; None unless all fit.

    If nodes differ in size, `free` asks Ray, and sizes with room now are
    preferred.
    """
    sizes_of_tasks = [alike(task, places) for task in tasks]
    if all(len(sizes) == 1 for sizes in sizes_of_tasks):
        found = fit.fitted(tasks, places)
    else:
        now = free()
        open_now = nodes.all_with_free(places, now)
        found = fit.fitted(tasks, open_now) or fit.fitted(tasks, places)
    if found is None:
        return None

    chosen_sizes = []
    for sizes, node in zip(sizes_of_tasks, found, strict=True):
        chosen_sizes.append(next(sized for sized in sizes if sized.size == _size(node)))
    return chosen_sizes


def _size(node: Node) -> Size:
    return (node.total.get("CPU", 0.0), node.total.get("GPU", 0.0))


def _labels(members: Sequence[Node], fitting: Sequence[Node]) -> dict[str, str]:
    """Return labels that select only `members` among the `fitting` nodes.

    Labels name groups if possible, because an autoscaler can add nodes of a
    group; else node ids.
    """
    groups = {node.group for node in members}
    others = {node.group for node in fitting if node not in members}
    if None in groups or groups & others:
        ids = ",".join(node.node_id for node in members if node.node_id)
        return {NODE_LABEL: f"in({ids})"}
    names = ",".join(sorted(filter(None, groups)))
    return {GROUP_LABEL: f"in({names})"}
