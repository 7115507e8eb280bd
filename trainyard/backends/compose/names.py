"""What somebody else has on the Docker host under a name that the cluster needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from trainyard.backends.compose import labels
from trainyard.errors import PrerequisiteError
from trainyard.seams.docker import containers as docker_containers
from trainyard.seams.docker import volumes as docker_volumes
from trainyard.seams.docker.engine import Engine

_REMOVE = {"container": "rm -f", "network": "network rm", "volume": "volume rm"}


@dataclass(frozen=True)
class InTheWay:
    """One thing that is not of the cluster, and has a name that the cluster needs."""

    kind: str
    name: str
    cluster: str | None = None

    def __str__(self) -> str:
        whose = f"it belongs to the cluster {self.cluster}" if self.cluster else "Trainyard did not make it"
        return f"the {self.kind} {self.name} is in the way: {whose}"


def in_the_way(engine: Engine, name: str, nodes: Iterable[str]) -> list[InTheWay]:
    """Look for a network, a volume and containers of these nodes that are not the cluster's."""
    return [
        InTheWay(kind, one, labelled.get(labels.CLUSTER))
        for kind, one, labelled in _named(engine, name, nodes)
        if labelled.get(labels.CLUSTER) != name
    ]


def refuse(found: Iterable[InTheWay], *, engine: Engine) -> None:
    """Raise PrerequisiteError if anything is in the way; nothing of others is taken over or removed."""
    everything = list(found)
    if not everything:
        return
    docker = f"docker -H {engine.ssh}" if engine.ssh else "docker"
    removes = "; ".join(f"{docker} {_REMOVE[one.kind]} {one.name}" for one in everything)
    raise PrerequisiteError(
        "; ".join(map(str, everything)),
        where=f"Docker host {engine.host}",
        hint=f"Give the cluster another name (`name:` in the cluster file). Or, if nobody needs it: {removes}",
    )


def _named(engine: Engine, name: str, nodes: Iterable[str]) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    for node in nodes:
        if container := docker_containers.container(engine, labels.container(name, node)):
            yield "container", container.name, container.labels
    if network := docker_volumes.network(engine, labels.project(name)):
        yield "network", network.name, network.labels
    if volume := docker_volumes.volume(engine, labels.outputs(name)):
        yield "volume", volume.name, volume.labels
