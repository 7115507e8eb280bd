"""The containers of a cluster, as they are found on its Docker host, compared with what the file asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from trainyard.backends.compose import labels
from trainyard.backends.compose.document import DASHBOARD_PORT
from trainyard.errors import RequestError
from trainyard.seams.docker import containers as docker_containers
from trainyard.seams.docker import volumes as docker_volumes
from trainyard.seams.docker.containers import Container
from trainyard.seams.docker.engine import Engine
from trainyard.seams.docker.volumes import Labelled

# Docker starts a container again by itself: between two tries it is still one that should run.
RUNNING = ("running", "restarting")


@dataclass(frozen=True)
class Difference:
    """What has to be done about the nodes, by their names, so that they are as the file asks."""

    missing: tuple[str, ...]
    unwanted: tuple[str, ...]


def nodes(engine: Engine, name: str) -> dict[str, Container]:
    """Return the containers of a cluster by their node's name, the head first."""
    found = docker_containers.labelled(engine, labels.of_cluster(name), labels.NODE)
    ordered = sorted(found, key=lambda one: (one.labels[labels.NODE] != "head", one.labels[labels.NODE]))
    return {one.labels[labels.NODE]: one for one in ordered}


def everything(engine: Engine, name: str) -> tuple[Container | Labelled, ...]:
    """Return what a cluster of this name has on the Docker host, whoever made it."""
    label = labels.of_cluster(name)
    return (
        *docker_containers.labelled(engine, label),
        *docker_volumes.networks(engine, label),
        *docker_volumes.volumes(engine, label),
    )


def refuse_foreign(found: Iterable[Container | Labelled], *, name: str, owner: str) -> None:
    """Raise RequestError if somebody else made a cluster of this name on the same Docker host."""
    for one in found:
        if labels.owner_of(one.labels) != owner:
            raise RequestError(
                f"a cluster called {name} is on this Docker host, and it was made by {labels.owner_of(one.labels)}",
                where=f"{one.name}; you are {owner}",
                hint="Give yours another name (`name:` in the cluster file).",
            )


def compare(
    wanted: Mapping[str, str], found: Mapping[str, Container], *, lost: frozenset[str] = frozenset()
) -> Difference:
    """Compare the fingerprints of the wanted nodes with the containers; `lost` are workers that do not find their head.

    No worker outlives its head: when the head is not as wanted, or does not run, none is.
    """
    fitting = {name for name, one in found.items() if wanted.get(name) == one.labels.get(labels.PLAN)} - lost
    if "head" not in fitting or found["head"].state not in RUNNING:
        fitting &= {"head"}
    running = {name for name in fitting if found[name].state in RUNNING}
    return Difference(
        missing=tuple(name for name in wanted if name not in running),
        # A container that fits and stands still is started again as it is.
        unwanted=tuple(name for name in found if name not in fitting),
    )


def started(found: Mapping[str, Container]) -> dict[str, float]:
    """Return when each container was last started, in Unix seconds of the Docker host."""
    return {name: _time(one.started).timestamp() for name, one in found.items() if one.started}


def older_than_head(found: Mapping[str, Container]) -> frozenset[str]:
    """Return the workers that were started before the head they have now: theirs is gone."""
    if "head" not in found:
        return frozenset()
    head = _time(found["head"].started)
    return frozenset(name for name, one in found.items() if one.state in RUNNING and _time(one.started) < head)


def dashboard_port(found: Mapping[str, Container]) -> int | None:
    """Return the port of the Docker host's loopback where the head's dashboard answers, or None if it does not run."""
    head = found.get("head")
    ports = [port.outside for port in head.ports if port.inside == DASHBOARD_PORT] if head else []
    return ports[0] if ports else None


def _time(text: str) -> datetime:
    """Read the engine's time, which may have nine digits of a second and has no zeros at their end."""
    whole, _, rest = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{whole}.{(rest + '000000')[:6]}+00:00")
