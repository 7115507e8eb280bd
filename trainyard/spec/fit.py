"""Can these tasks run on that cluster at all? Asked before anything is started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainyard.errors import Problem, RequestError
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.expand import TaskSpec
from trainyard.suggest import did_you_mean


def check_fit(tasks: Sequence[TaskSpec], cluster: ClusterSpec) -> None:
    """Raise RequestError for tasks that no node of the cluster can ever take.

    Nothing is known about the nodes of a cluster that somebody else runs.
    """
    if cluster.backend == "existing":
        return
    problems = tuple(dict.fromkeys(_problems(tasks, cluster)))
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise RequestError(f"the job does not fit the cluster {cluster.name}: {count}", problems=problems)


def _problems(tasks: Sequence[TaskSpec], cluster: ClusterSpec) -> Iterator[Problem]:
    groups = {"head": cluster.head.gpus, **{group.name: group.gpus for group in cluster.workers}}
    largest = {group.name: group.max or group.wanted for group in cluster.workers}
    nodes = {"head": cluster.head.gpus}
    nodes |= {f"{group.name}-{i}": group.gpus for group in cluster.workers for i in range(largest[group.name])}
    for task in tasks:
        if task.node_group is not None and task.node_group not in groups:
            yield _unknown("node.group", task.node_group, list(groups))
        elif task.node_name is not None and task.node_name not in nodes:
            yield _unknown("node.name", task.node_name, list(nodes))
        else:
            yield from _gpu_problems(task, groups, nodes)


def _gpu_problems(task: TaskSpec, groups: dict[str, int], nodes: dict[str, int]) -> Iterator[Problem]:
    if task.node_name is not None:
        place, most = f"the node {task.node_name}", nodes[task.node_name]
    elif task.node_group is not None:
        place, most = f"a node of the group {task.node_group}", groups[task.node_group]
    else:
        place, most = "the largest node", max(nodes.values())
    if task.gpus > most:
        yield Problem("resources.gpus", f"a task needs {task.gpus:g}, and {place} has {most}")


def _unknown(where: str, name: str, known: Sequence[str]) -> Problem:
    listed = ", ".join(known) if len(known) <= 12 else f"{', '.join(known[:12])} and {len(known) - 12} more"
    return Problem(where, f"{name!r} is not in the cluster: it has {listed}{did_you_mean(name, known)}")
