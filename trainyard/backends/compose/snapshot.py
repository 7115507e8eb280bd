"""The containers of a cluster, as they are found on its Docker host, compared with what the file asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from trainyard.backends.compose import naming
from trainyard.backends.compose.desired import DASHBOARD_PORT
from trainyard.backends.node_steps import Difference
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.seams.docker import containers as docker_containers
from trainyard.seams.docker import volumes as docker_volumes
from trainyard.seams.docker.containers import Container
from trainyard.seams.docker.engine import Engine
from trainyard.seams.docker.volumes import Labelled

# Docker starts a container again by itself: between two tries it is still one that should run.
RUNNING = ("running", "restarting")


def nodes(engine: Engine, name: str) -> dict[str, Container]:
    found = docker_containers.labelled(engine, naming.of_cluster(name), naming.NODE)
    named = {container.labels[naming.NODE]: container for container in found}
    return dict(sorted(named.items(), key=lambda item: (item[0] != "head", item[0])))


def refuse_foreign(engine: Engine, name: str, *, owner: str) -> None:
    """Raise RequestError if somebody else made a cluster of this name on the same Docker host."""
    label = naming.of_cluster(name)
    found: tuple[Container | Labelled, ...] = (
        *docker_containers.labelled(engine, label),
        *docker_volumes.networks(engine, label),
        *docker_volumes.volumes(engine, label),
    )
    for thing in found:
        if naming.owner_of(thing.labels) != owner:
            raise RequestError(
                f"a cluster called {name} is on this Docker host, and it was made by {naming.owner_of(thing.labels)}",
                where=f"{thing.name}; you are {owner}",
                hint="Give yours another name (`name:` in the cluster file).",
            )


def in_the_way(engine: Engine, name: str, nodes: Iterable[str]) -> dict[str, str]:
    """Return what has a name that the cluster needs and is not of it, and the words of `docker` that remove it."""
    needed: list[tuple[str, str, Container | Labelled | None]] = [
        ("container", "rm -f", docker_containers.container(engine, naming.container(name, node))) for node in nodes
    ]
    needed.append(("network", "network rm", docker_volumes.network(engine, naming.project(name))))
    needed.append(("volume", "volume rm", docker_volumes.volume(engine, naming.outputs(name))))
    found = {}
    for kind, remove, thing in needed:
        cluster = thing.labels.get(naming.CLUSTER) if thing else None
        if thing and cluster != name:
            whose = f"it belongs to the cluster {cluster}" if cluster else "Trainyard did not make it"
            found[f"the {kind} {thing.name} is in the way: {whose}"] = f"{remove} {thing.name}"
    return found


def refuse_in_the_way(engine: Engine, name: str, nodes: Iterable[str]) -> None:
    """Raise PrerequisiteError if anything is in the way; nothing of others is taken over or removed."""
    found = in_the_way(engine, name, nodes)
    if found:
        docker = f"docker -H {engine.ssh}" if engine.ssh else "docker"
        removes = "; ".join(f"{docker} {words}" for words in found.values())
        raise PrerequisiteError(
            "; ".join(found),
            where=f"Docker host {engine.host}",
            hint=f"Give the cluster another name (`name:` in the cluster file). Or, if nobody needs it: {removes}",
        )


def compare(
    desired: Mapping[str, str], found: Mapping[str, Container], *, lost: frozenset[str] = frozenset()
) -> Difference:
    """Compare the fingerprints of the desired nodes with the containers; `lost` are workers without their head.

    No worker outlives its head: when the head is not as desired, or does not run, none is.
    """
    fitting = {
        name for name, container in found.items() if desired.get(name) == container.labels.get(naming.PLAN)
    } - lost
    if "head" not in fitting or found["head"].state not in RUNNING:
        fitting &= {"head"}
    running = {name for name in fitting if found[name].state in RUNNING}
    return Difference(
        missing=tuple(name for name in desired if name not in running),
        # A container that fits and stands still is started again as it is.
        surplus=tuple(name for name in found if name not in fitting),
    )


def started(found: Mapping[str, Container]) -> dict[str, float]:
    return {name: _time(container.started) for name, container in found.items() if container.started}


def older_than_head(found: Mapping[str, Container]) -> frozenset[str]:
    """Return the running workers that were started before the head they have now: theirs is gone."""
    times = started(found)
    return frozenset(
        name
        for name, container in found.items()
        if container.state == "running" and times.get(name, 0.0) < times.get("head", 0.0)
    )


def dashboard_port(found: Mapping[str, Container]) -> int | None:
    """Return the port of the Docker host's loopback where the head's dashboard answers, or None if it does not run."""
    head = found.get("head")
    return next((port.outside for port in head.ports if port.inside == DASHBOARD_PORT), None) if head else None


def _time(text: str) -> float:
    """Read the engine's time, which may have nine digits of a second and has no zeros at their end."""
    whole, _, rest = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{whole}.{(rest + '000000')[:6]}+00:00").timestamp()
