"""How a cluster of containers is: what Docker says about each, and what Ray says about all; and where it answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainyard import versions
from trainyard.backends import contract, ray_nodes
from trainyard.backends.compose import desired, naming, preflight, record, snapshot
from trainyard.backends.compose.desired import Desired
from trainyard.backends.compose.diagnosis import last_line, phrase, restarts_forever
from trainyard.backends.contract import ClusterStatus, NodeStatus, Tools
from trainyard.endpoint import Endpoint, ExpectedNode
from trainyard.errors import OutsideError
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker.containers import Container
from trainyard.seams.docker.engine import Engine
from trainyard.seams.ray_api import UnreachableError
from trainyard.seams.ssh import connection, forward
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.nodes import NodeSpec

LOOPBACK = "127.0.0.1"


def status(spec: ClusterSpec, tools: Tools) -> ClusterStatus:
    """Ask every node that the file names, or that has a container, how it is."""
    engine, containers = _find(spec, tools)
    token = record.token(tools)
    answering, detail = answer(engine, containers, token) if containers else (frozenset[str](), "")
    declared = {node.name: node for node in spec.nodes()}
    nodes = tuple(
        _status(name, engine, declared.get(name), containers.get(name), name in answering)
        for name in {**declared, **containers}
    )
    details = [detail, *(f"{node.name}: {node.detail}" for node in nodes if node.detail and node.name in containers)]
    # What others have under the cluster's names is asked for only where there is a gap.
    missing = [name for name in declared if name not in containers]
    details += snapshot.in_the_way(engine, spec.name, missing) if missing else {}
    return ClusterStatus(
        name=spec.name,
        backend=tools.backend,
        state=ray_nodes.cluster_state(node.state for node in nodes),
        nodes=nodes,
        address=address(engine, containers),
        token_file=record.token_file(tools) if token else None,
        simulated_gpus=_simulated(containers),
        tunnel=engine.ssh,
        detail="; ".join(filter(None, details)),
        differences=tuple(_differences(spec, engine, containers)),
        token=token,
    )


def connect(spec: ClusterSpec, tools: Tools) -> Endpoint:
    """Return the endpoint; over SSH, a tunnel that ends with this process. Raises NotReadyError if there is none."""
    engine, containers = _find(spec, tools)
    found = address(engine, containers)
    if found is None:
        raise contract.not_up(spec.name)
    return Endpoint(
        cluster=spec.name,
        address=found,
        token=record.token(tools),
        simulated_gpus=_simulated(containers),
        expected=tuple(_expected(name, container) for name, container in containers.items()),
        ray_version=versions.RAY,
        image=containers["head"].labels.get(naming.IMAGE),
        tunnel=engine.ssh,
        down=tuple(
            (name, phrase(container, answers=False))
            for name, container in containers.items()
            if container.state not in snapshot.RUNNING
        ),
    )


def address(engine: Engine, containers: Mapping[str, Container]) -> str | None:
    """Return where the dashboard answers for us: on loopback, here or through a tunnel that ends with this process."""
    port = snapshot.dashboard_port(containers)
    if port is None:
        return None
    if engine.ssh:
        port = forward.local_port(connection.connect(engine.ssh, engine.environ), port)
    return f"http://{LOOPBACK}:{port}"


def answer(engine: Engine, containers: Mapping[str, Container], token: str | None) -> tuple[frozenset[str], str]:
    """Return the names of the nodes that Ray itself calls alive, and why there are none."""
    where = address(engine, containers)
    if where is None:
        return frozenset(), "the head does not run"
    return ray_nodes.answer(where, token, started=snapshot.started(containers))


def never_ran(engine: Engine, head: Container, token: str | None) -> bool:
    """Say whether nothing can run on a head: it only ends and is started again, or was never healthy, and is silent."""
    if head.restarts == 0 and head.health != "starting":
        return False
    where = address(engine, {"head": head})
    try:
        if where is not None:
            ray_nodes.alive(where, token, started={})
    except UnreachableError:
        return True
    except OutsideError:
        # Somebody answers who wants another token.
        return False
    return where is None


def _find(spec: ClusterSpec, tools: Tools) -> tuple[Engine, dict[str, Container]]:
    """Return the engine and the cluster's containers. Raises RequestError if they are another user's."""
    engine = record.connect(spec, tools)
    snapshot.refuse_foreign(engine, spec.name, owner=record.owner(tools))
    return engine, snapshot.nodes(engine, spec.name)


def _status(
    name: str, engine: Engine, declared: NodeSpec | None, container: Container | None, answers: bool
) -> NodeStatus:
    runs = container is not None and container.state in snapshot.RUNNING and not restarts_forever(container)
    state = ray_nodes.node_state(exists=container is not None, runs=runs, answers=answers, desired=declared is not None)
    detail = "" if state == "up" else "no container"
    if container and state != "up":
        detail = phrase(container, answers=answers, log_tail=last_line(engine, container))
    node = _expected(name, container) if container else declared
    group, cpus, gpus = (node.group, node.cpus, node.gpus) if node else ("", None, 0)
    return NodeStatus(name, group, LOOPBACK if engine.is_here else engine.host, state, cpus, gpus, detail)


def _expected(name: str, container: Container) -> ExpectedNode:
    labels = container.labels
    return ExpectedNode(name, labels[naming.GROUP], int(labels[naming.CPUS]), int(labels[naming.GPUS]))


def _simulated(containers: Mapping[str, Container]) -> bool:
    return any(container.labels.get(naming.SIMULATED) == "true" for container in containers.values())


def _differences(spec: ClusterSpec, engine: Engine, containers: Mapping[str, Container]) -> Iterator[str]:
    """Yield in what the nodes are not as the file says; which image it means now, only a registry knows."""
    head = containers.get("head")
    if head is None:
        return
    gpu_ids = tuple(str(index) for index in range(sum(node.gpus for node in spec.nodes())))
    plans = preflight.node_plans(spec, engine, gpu_ids, simulated=_simulated(containers))
    labels = head.labels
    document = desired.document(
        Desired(spec, plans, labels[naming.IMAGE], naming.owner_of(labels), labels[naming.TOKEN] or None)
    )
    for name, service in document.services.items():
        container = containers.get(name)
        if container and container.labels.get(naming.PLAN) != document.fingerprints[name]:
            image = docker_images.inspect(engine, container.image_id)
            changes = desired.changes(service, container, image.env if image else {})
            yield from (f"{name}: {change}" for change in changes)
