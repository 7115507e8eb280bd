"""A cluster's Docker host: the connection to its engine, and the owner."""

from __future__ import annotations

from collections.abc import Iterable

from trainyard.backends.compose import naming
from trainyard.backends.contract import Site
from trainyard.backends.shared import owner as owners
from trainyard.backends.shared.record import read_cluster, write_cluster
from trainyard.errors import RequestError
from trainyard.seams.docker import containers as docker_containers
from trainyard.seams.docker import engine as docker_engine
from trainyard.seams.docker.containers import Container, Labelled
from trainyard.seams.docker.engine import Engine
from trainyard.spec.cluster import ClusterSpec


def write(site: Site, engine: Engine) -> None:
    """Record a cluster's Docker host and owner.

    The cluster file, $DOCKER_HOST or this machine's host name may change
    between commands.
    """
    record = {"docker": engine.address, "owner": owner(site)}
    write_cluster(site.state, site.backend, record)


def owner(site: Site) -> str:
    """Return the owner recorded on `up`; without a record, this directory's."""
    record = read_cluster(site.state, site.backend)
    if record:
        return str(record["owner"])
    return owners.of_directory(site.environ, site.state)


def connect(spec: ClusterSpec, site: Site) -> Engine:
    """Connect to the recorded Docker host; without a record, to the file's.

    Raises PrerequisiteError if the engine does not answer, and RequestError if
    another user has a cluster of this name there.
    """
    record = read_cluster(site.state, site.backend)
    if record:
        address = record["docker"]
    else:
        address = _desired_address(spec, site)

    engine = docker_engine.connect(site.environ, address=address)
    label = naming.of_cluster(spec.name)
    _refuse_foreign(spec, site, docker_containers.labelled(engine, label))
    _refuse_foreign(spec, site, docker_containers.networks(engine, label))
    _refuse_foreign(spec, site, docker_containers.volumes(engine, label))
    return engine


def refuse_other_host(spec: ClusterSpec, site: Site) -> None:
    """Raise RequestError if the recorded Docker host is not the file's."""
    record = read_cluster(site.state, site.backend)
    desired = _desired_address(spec, site)
    if record and record["docker"] != desired:
        raise RequestError(
            f"cluster {spec.name} is on the Docker host {record['docker']}; this command asks for "
            f"{desired}",
            where=str(site.source) if site.source else None,
            hint="Remove it there first: trainyard cluster.down",
        )


def refuse_taken_volume(spec: ClusterSpec, site: Site, engine: Engine) -> None:
    """Raise RequestError if the outputs volume is another owner's.

    Docker would silently use that volume; it rejects only containers and
    networks of the same name.
    """
    name = naming.outputs(spec.name)
    taken = [volume for volume in docker_containers.volumes(engine) if volume.name == name]
    _refuse_foreign(spec, site, taken)


def _refuse_foreign(
    spec: ClusterSpec, site: Site, everything: Iterable[Container | Labelled]
) -> None:
    """Raise RequestError for an object of another cluster or owner."""
    we = owner(site)
    for thing in everything:
        cluster = thing.labels.get(naming.CLUSTER)
        maker = thing.labels.get(naming.OWNER)
        if cluster != spec.name or maker != we:
            of_cluster = ""
            if cluster:
                of_cluster = f" in cluster {cluster}"
            raise RequestError(
                f"{thing.name} exists on this Docker host{of_cluster}, made by "
                f"{maker or 'an unknown user'}",
                where=f"cluster {spec.name}; you are {we}",
                hint="Give your cluster another name (`name:` in its file).",
            )


def _desired_address(spec: ClusterSpec, site: Site) -> str:
    """Return the engine's address: the file's, else that of `docker` here.

    Raises RequestError for an engine over TCP: only SSH reaches the dashboard
    on its host's loopback.
    """
    address = spec.compose.docker or docker_engine.found_address(site.environ)
    if address.startswith(("unix://", "ssh://")):
        return address

    source = "Docker's current context"
    if site.environ.get("DOCKER_HOST"):
        source = "$DOCKER_HOST"
    raise RequestError(
        f"backend 'compose' needs a Docker host here or over SSH, and `docker` talks to {address}",
        where=source,
        hint="Write `compose: {docker: ssh://user@host}`; Docker over plain TCP lets everybody in.",
    )
