"""What the runner is told: cluster and job as one JSON document, and whether the job can run there at all."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from trainyard.dispatch.package import Package
from trainyard.endpoint import Endpoint
from trainyard.errors import Problem, RequestError
from trainyard.spec import ClusterSpec, JobSpec, NodeSpec, TaskSpec
from trainyard.suggest import did_you_mean
from trainyard.versions import RUNNER_PROTOCOL

# How long a task has between SIGTERM and SIGKILL, in seconds. Ray gives the runner itself RAY_JOB_STOP_WAIT_TIME_S.
STOP_GRACE = 5


def build(
    run: str,
    endpoint: Endpoint,
    *,
    job: JobSpec | None = None,
    tasks: Sequence[TaskSpec] = (),
    package: Package | None = None,
    wheels: Package | None = None,
    skip_gate: bool = False,
) -> bytes:
    """Return the plan as JSON; without a job it is a smoke test and nothing else."""
    document = {
        "version": RUNNER_PROTOCOL,
        "run": run,
        "job": job.name if job else None,
        "cluster": endpoint.cluster,
        "package": package.name if package else None,
        "package_parts": list(package.parts) if package else [],
        "runtime_env": _runtime_env(job, wheels) if job else None,
        "together": bool(job and job.together),
        "tasks": [asdict(task) for task in tasks],
        "gate": {
            "skip": skip_gate,
            "simulated_gpus": endpoint.simulated_gpus,
            "nodes": None if endpoint.expected is None else [asdict(node) for node in endpoint.expected],
            "ray": endpoint.ray_version,
            "needs": job.smoke.model_dump() if job else {},
        },
        "stop_grace": STOP_GRACE,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def check_fits(cluster: ClusterSpec, job: JobSpec, tasks: Sequence[TaskSpec]) -> None:
    """Raise RequestError when a task can never run on the nodes that the cluster file declares.

    What a file leaves open (cpus of a node, every node of an existing cluster) is not judged here.
    """
    if cluster.backend == "existing":
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
    if task.node_name is not None and task.node_name not in {node.name for node in nodes}:
        names = [node.name for node in nodes]
        yield Problem("node.name", f"no node is called {task.node_name!r}{_known(task.node_name, names)}")
        return
    if task.node_group is not None and task.node_group not in {node.group for node in nodes}:
        groups = sorted({node.group for node in nodes})
        yield Problem("node.group", f"no group is called {task.node_group!r}{_known(task.node_group, groups)}")
        return
    allowed = [node for node in nodes if task.node_name in (None, node.name) and task.node_group in (None, node.group)]
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


def _runtime_env(job: JobSpec, wheels: Package | None) -> dict[str, Any] | None:
    """Return the job's runtime environment in Ray's form, or None if it asks for nothing.

    Wheels are found by Ray through ${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}: a package that holds nothing but them.
    """
    wanted = job.runtime_env
    made: dict[str, Any] = {}
    by = "pip" if wanted.pip and not wanted.uv else "uv"
    names = [f"${{RAY_RUNTIME_ENV_CREATE_WORKING_DIR}}/{wheel.rsplit('/', 1)[-1]}" for wheel in wanted.wheels]
    packages = [*names, *(wanted.pip if by == "pip" else wanted.uv)]
    if packages:
        made[by] = packages
    if wheels:
        made["working_dir"] = f"gcs://{wheels.parts[0]}"
    if wanted.env_vars:
        made["env_vars"] = dict(wanted.env_vars)
    return made or None
