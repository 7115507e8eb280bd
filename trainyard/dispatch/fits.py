"""Whether the nodes that a cluster file declares can ever run a job: asked before anything is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from trainyard.backends import BACKENDS
from trainyard.errors import Problem, RequestError
from trainyard.spec import ClusterSpec, JobSpec, NodeSpec, TaskSpec
from trainyard.suggest import did_you_mean


def check_fits(cluster: ClusterSpec, job: JobSpec, tasks: Sequence[TaskSpec]) -> None:
    """Raise RequestError when a task can never run on the nodes that the cluster file declares.

    What a file leaves open (cpus of a node, every node of an existing cluster) is not judged here.
    """
    if not BACKENDS[cluster.backend].TRAITS.makes_nodes:
        return
    problems = Counter(problem for task in tasks for problem in _misfits(cluster, task))
    if problems:
        raise RequestError(
            f"job {job.name} can never run on cluster {cluster.name}",
            problems=tuple(_counted(problem, times, len(tasks)) for problem, times in problems.items()),
            hint="Change `resources` or `node` in the job file, or the nodes in the cluster file.",
        )


def _misfits(cluster: ClusterSpec, task: TaskSpec) -> Iterator[Problem]:
    nodes = _possible_nodes(cluster)
    named = [node for node in nodes if _is_called(cluster, node, task.node_name)]
    if not named:
        yield Problem(
            "node.name", f"no node is called {task.node_name!r}{_names(cluster, task.node_name or '', nodes)}"
        )
        return
    if task.node_group is not None and task.node_group not in {node.group for node in nodes}:
        groups = sorted({node.group for node in nodes})
        yield Problem("node.group", f"no group is called {task.node_group!r}{_known(task.node_group, groups)}")
        return
    allowed = [node for node in named if task.node_group in (None, node.group)]
    if not any(_holds(node, task) for node in allowed):
        wanted = _resources(task.cpus, task.gpus, task.memory)
        offered = sorted({f"{node.group}: {_resources(node.cpus, node.gpus, node.memory)}" for node in allowed})
        yield Problem("resources", f"a task needs {wanted}, but no node has that much ({'; '.join(offered)})")


def _possible_nodes(cluster: ClusterSpec) -> tuple[NodeSpec, ...]:
    """Return every node that may ever exist: a group that grows counts with its maximum."""
    growing = [
        NodeSpec(f"{group.name}-{index}", group.name, group.cpus, group.memory, group.gpus)
        for group in cluster.workers
        for index in range(group.wanted, max(group.wanted, group.max or 0))
    ]
    return (*cluster.nodes(), *growing)


def _is_called(cluster: ClusterSpec, node: NodeSpec, name: str | None) -> bool:
    """Say whether a name may be this node's: where names change it begins with the group, the rest is made up there."""
    if name is None or name == node.name:
        return True
    return BACKENDS[cluster.backend].TRAITS.names_change and node.name != "head" and name.startswith(f"{node.group}-")


def _names(cluster: ClusterSpec, wrong: str, nodes: Sequence[NodeSpec]) -> str:
    if not BACKENDS[cluster.backend].TRAITS.names_change:
        return _known(wrong, [node.name for node in nodes])
    groups = dict.fromkeys(f"{node.group}-..." for node in nodes if node.name != "head")
    return (
        f"{_known(wrong, ['head', *groups])}; `cluster.status` shows the names, and a node that is made anew gets "
        "another one: rather say node.group"
    )


def _holds(node: NodeSpec, task: TaskSpec) -> bool:
    pairs = ((task.cpus, node.cpus), (task.gpus, node.gpus), (task.memory or 0, node.memory))
    return all(has is None or needs <= has for needs, has in pairs)


def _resources(cpus: float | None, gpus: float, memory: int | None) -> str:
    parts = [f"{cpus:g} CPU" if cpus is not None else "CPUs of its host", f"{gpus:g} GPU"]
    return ", ".join([*parts, *([f"{memory / 2**30:.3g} GiB"] if memory is not None else [])])


def _known(wrong: str, names: Sequence[str]) -> str:
    listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"{did_you_mean(wrong, names)} (there are: {listed})"


def _counted(problem: Problem, times: int, tasks: int) -> Problem:
    suffix = f" [{times} of {tasks} tasks]" if tasks > 1 else ""
    return Problem(problem.where, problem.message + suffix)
