"""The shapes of a cluster's nodes, against what a job asks for: what can never start is not sent."""

from __future__ import annotations

from dataclasses import asdict

from trainyard_runner.nodes import UNLIMITED, Node
from trainyard_runner.plan import Gate, task_of
from trainyard_runner.room import room
from trainyard_runner.shares import settled

from trainyard.dispatch.plan import Prepared
from trainyard.endpoint import Endpoint, ExpectedNode
from trainyard.errors import RequestError
from trainyard.seams.ray_api import RayApi
from trainyard.spec.expand import sweep


def refuse_what_never_fits(prepared: Prepared, endpoint: Endpoint, ray: RayApi, *, skip_smoke: bool) -> None:
    """Raise RequestError if a task can never start on this cluster, autoscaled groups counted with all their nodes.

    A cluster of somebody else promises nothing: there, Ray's nodes of this moment count, as in the smoke test.
    """
    if endpoint.down or (endpoint.expected is None and skip_smoke):
        return
    nodes = _of_ray(ray) if endpoint.expected is None else _promised(endpoint.expected)
    template = sweep(prepared.job)
    raw = [template["task"]] if template else [asdict(task) for task in prepared.tasks]
    tasks = [task_of(index, task) for index, task in enumerate(raw)]
    gate = Gate(names_change=endpoint.names_change)
    found = room(settled(tasks, gate, nodes), gate, nodes, together=prepared.job.together)
    if found and not found.ok:
        where = f"job {prepared.job.name} on cluster {endpoint.cluster}; nothing was sent"
        raise RequestError(found.detail, where=where, hint=found.hint)


def _promised(expected: tuple[ExpectedNode, ...]) -> list[Node]:
    return [Node("", node.name, node.group, "", _resources(node)) for node in expected]


def _resources(node: ExpectedNode) -> dict[str, float]:
    cpus = UNLIMITED if node.cpus is None else node.cpus
    return {"CPU": cpus, "GPU": node.gpus, "memory": node.memory or UNLIMITED, **node.resources}


def _of_ray(ray: RayApi) -> list[Node]:
    return [
        Node(
            node.node_id,
            node.name,
            node.group,
            node.ip,
            {"CPU": node.cpus, "GPU": node.gpus, "memory": node.memory, **node.custom},
        )
        for node in ray.nodes()
        if node.alive
    ]
