"""Head and workers as containers of one Docker host, here or reached by SSH; the dashboard on loopback only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainyard import versions
from trainyard.backends import record
from trainyard.backends.compose import found, host, labels, names, view
from trainyard.backends.compose import logs as log_lines
from trainyard.backends.compose.down import down_steps
from trainyard.backends.compose.up import up_steps
from trainyard.backends.compose.verification import verify
from trainyard.backends.contract import ClusterStatus, Discovered, LogLine, NodeStatus, Tools, Traits
from trainyard.backends.ray_nodes import cluster_state, node_state
from trainyard.endpoint import Endpoint, ExpectedNode
from trainyard.errors import NotReadyError
from trainyard.seams.docker.containers import Container
from trainyard.seams.docker.engine import Engine
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.nodes import NodeSpec

__all__ = ["connect", "documents", "down_steps", "logs", "status", "up_steps", "verify"]

TRAITS = Traits(pushed_image="image.verify")


def documents(spec: ClusterSpec, tools: Tools) -> list[dict[str, Any]]:
    """Return none: what Docker Compose gets is made for each command, and nobody else needs it."""
    return []


def status(spec: ClusterSpec, tools: Tools) -> ClusterStatus:
    """Ask every node that the file names, or that has a container, how it is."""
    engine = host.connect(spec, tools)
    containers = _ours(spec, tools, engine)
    token = _token(tools)
    answering, seen = view.answer(engine, containers, token) if containers else (frozenset[str](), "")
    nodes = _statuses(spec, engine, containers, answering)
    return ClusterStatus(
        name=spec.name,
        backend="compose",
        state=cluster_state(node.state for node in nodes),
        nodes=nodes,
        address=view.address(engine, containers),
        token_file=host.token_file(tools) if token else None,
        simulated_gpus=_simulated(containers),
        tunnel=engine.ssh,
        detail="; ".join(_seen(spec, engine, nodes, seen)),
        token=token,
    )


def connect(spec: ClusterSpec, tools: Tools) -> Endpoint:
    """Return the way in; over SSH, a tunnel that ends with this process. Raises NotReadyError if there is none."""
    engine = host.connect(spec, tools)
    containers = _ours(spec, tools, engine)
    address = view.address(engine, containers)
    if address is None:
        raise NotReadyError(f"cluster {spec.name} is not up", hint="Make it: invoke cluster.up")
    return Endpoint(
        cluster=spec.name,
        address=address,
        token=_token(tools),
        simulated_gpus=_simulated(containers),
        expected=tuple(_expected(name, one) for name, one in containers.items()),
        ray_version=versions.RAY,
        image=containers["head"].labels.get(labels.IMAGE),
        tunnel=engine.ssh,
        down=tuple(
            (name, view.seen(one, answers=False)) for name, one in containers.items() if one.state not in found.RUNNING
        ),
    )


def logs(spec: ClusterSpec, tools: Tools, *, follow: bool) -> Iterator[LogLine]:
    """Return what the containers print and Ray's own log files say, from their ends on."""
    engine = host.connect(spec, tools)
    if not found.nodes(engine, spec.name):
        raise NotReadyError(f"cluster {spec.name} is not up", hint="Make it: invoke cluster.up")
    return log_lines.lines(engine, spec.name, _token(tools), follow=follow)


def discover(
    clusters: Sequence[tuple[ClusterSpec, Tools]], states: Sequence[Path], environ: Mapping[str, str]
) -> Discovered:
    """Find nothing: what is written down here is all that leads to such a cluster."""
    return Discovered()


def _ours(spec: ClusterSpec, tools: Tools, engine: Engine) -> dict[str, Container]:
    """Return the cluster's containers. Raises RequestError if they are another user's."""
    containers = found.nodes(engine, spec.name)
    found.refuse_foreign(containers.values(), name=spec.name, owner=host.owner(tools))
    return containers


def _seen(spec: ClusterSpec, engine: Engine, nodes: tuple[NodeStatus, ...], said: str) -> list[str]:
    """Return why nodes are not up; what others have under their names is asked for where there is a gap."""
    there = {node.name for node in nodes if node.detail != view.NO_CONTAINER}
    missing = [node.name for node in spec.nodes() if node.name not in there]
    blocking = names.in_the_way(engine, spec.name, missing) if missing else []
    return [
        *([said] if said else []),
        *(f"{node.name}: {node.detail}" for node in nodes if node.detail and node.detail != view.NO_CONTAINER),
        *map(str, blocking),
    ]


def _statuses(
    spec: ClusterSpec, engine: Engine, containers: Mapping[str, Container], answering: frozenset[str]
) -> tuple[NodeStatus, ...]:
    wanted = {node.name: node for node in spec.nodes()}
    every = [*wanted, *(name for name in containers if name not in wanted)]
    return tuple(_status(name, engine, wanted.get(name), containers.get(name), name in answering) for name in every)


def _status(
    name: str, engine: Engine, wanted: NodeSpec | None, container: Container | None, answers: bool
) -> NodeStatus:
    runs = container is not None and container.state in found.RUNNING and not view.ends_again_and_again(container)
    state = node_state(exists=container is not None, runs=runs, answers=answers, desired=wanted is not None)
    made = _expected(name, container) if container else None
    is_ = made or wanted
    group, cpus, gpus = (is_.group, is_.cpus, is_.gpus) if is_ else ("", None, 0)
    why = "" if state == "up" else view.seen(container, answers=answers, last_words=_last_words(engine, container))
    return NodeStatus(name, group, view.LOOPBACK if engine.is_here else engine.host, state, cpus, gpus, detail=why)


def _last_words(engine: Engine, container: Container | None) -> str:
    return view.last_words(engine, container) if container else ""


def _expected(name: str, container: Container) -> ExpectedNode:
    """Return what a container was made to be."""
    written = container.labels
    return ExpectedNode(name, written[labels.GROUP], int(written[labels.CPUS]), int(written[labels.GPUS]))


def _simulated(containers: Mapping[str, Container]) -> bool:
    return any(one.labels.get(labels.SIMULATED) == "true" for one in containers.values())


def _token(tools: Tools) -> str | None:
    return record.read_token(host.token_file(tools))
