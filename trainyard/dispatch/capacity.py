"""Compare jobs with the cluster's nodes; refuse a job that can never start."""

from __future__ import annotations

from collections.abc import Sequence

from trainyard_runner.wire.fit import room
from trainyard_runner.wire.nodes import UNLIMITED, Node, called
from trainyard_runner.wire.plan import ExpectedNode, Gate, Task, task_of
from trainyard_runner.wire.shares import settled

from trainyard.dispatch.plan import Prepared
from trainyard.endpoint import Endpoint
from trainyard.errors import RequestError
from trainyard.seams.ray_api import RayApi
from trainyard.spec.expand import sweep


def refuse_what_never_fits(
    prepared: Prepared, endpoint: Endpoint, ray: RayApi, *, skip_smoke: bool
) -> None:
    """Raise RequestError if a task can never start on this cluster.

    Autoscaled groups count at their largest size. For a cluster that Trainyard
    did not make, Ray's present nodes count; with `skip_smoke`, it is not
    checked. A cluster with a node that is known to be down is never checked.
    """
    if endpoint.down or (endpoint.expected is None and skip_smoke):
        return

    template = sweep(prepared.job)
    if template:
        tasks = [task_of(template["task"])]
    else:
        tasks = list(prepared.tasks)

    nodes = _places(tasks, endpoint, ray)
    gate = Gate(names_change=endpoint.names_change)
    found = room(settled(tasks, gate, nodes), gate, nodes, together=prepared.job.together)
    if found and not found.ok:
        where = f"job {prepared.job.name} on cluster {endpoint.cluster}; nothing was sent"
        raise RequestError(found.detail, where=where, hint=found.hint)


def _places(tasks: Sequence[Task], endpoint: Endpoint, ray: RayApi) -> list[Node]:
    """Return the nodes for tasks: the cluster file's, or Ray's present nodes.

    Tasks may name a node by host name, address or id, which only Ray's present
    nodes have.
    """
    named = {task.node_name for task in tasks if task.node_name}
    if endpoint.expected is None:
        return _of_ray(ray, has_host_names=bool(named))
    if named <= {node.name for node in endpoint.expected}:
        return _promised(endpoint.expected)

    nodes = _of_ray(ray, has_host_names=True)
    are_there = all(called(name, nodes) for name in named)
    if are_there:
        return nodes
    return _promised(endpoint.expected)


def _promised(expected: tuple[ExpectedNode, ...]) -> list[Node]:
    return [Node("", node.name, node.group, "", _resources(node)) for node in expected]


def _resources(node: ExpectedNode) -> dict[str, float]:
    cpus = UNLIMITED if node.cpus is None else node.cpus
    return {"CPU": cpus, "GPU": node.gpus, "memory": node.memory or UNLIMITED, **node.resources}


def _of_ray(ray: RayApi, *, has_host_names: bool) -> list[Node]:
    host_names = ray.host_names() if has_host_names else {}
    nodes = []
    for node in ray.nodes():
        if not node.alive:
            continue
        resources = {"CPU": node.cpus, "GPU": node.gpus, "memory": node.memory, **node.custom}
        host_name = host_names.get(node.node_id, "")
        nodes.append(
            Node(node.node_id, node.name, node.group, node.ip, resources, host_name=host_name)
        )
    return nodes
