"""Which Docker host a cluster is on: what is written down about it, and the connection to it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from trainyard.backends.compose import naming
from trainyard.backends.contract import Tools
from trainyard.backends.record import read_cluster, write_cluster
from trainyard.errors import RequestError
from trainyard.seams.docker import engine as docker_engine
from trainyard.seams.docker.engine import Engine
from trainyard.spec.cluster import ClusterSpec


@dataclass(frozen=True)
class Record:
    """What is written down, so that the cluster is found although its file, $DOCKER_HOST or our host name changed."""

    name: str
    docker: str
    owner: str


def token_file(tools: Tools) -> Path:
    return tools.state / "token"


def write(tools: Tools, record: Record) -> None:
    write_cluster(tools.state, tools.backend, asdict(record))


def read(tools: Tools) -> Record | None:
    """Return what was written down, None if nothing was."""
    found = read_cluster(tools.state, tools.backend)
    return Record(found["name"], found["docker"], found["owner"]) if found else None


def owner(tools: Tools) -> str:
    """Return who we are to others on the Docker host, as it was when the cluster was made."""
    record = read(tools)
    return record.owner if record else naming.owner(tools.state)


def connect(spec: ClusterSpec, tools: Tools) -> Engine:
    """Connect to the engine that has the cluster, or is to have it. Raises PrerequisiteError if it does not answer."""
    record = read(tools)
    return docker_engine.connect(tools.environ, address=record.docker if record else desired_address(spec, tools))


def desired_address(spec: ClusterSpec, tools: Tools) -> str:
    """Return the address of the engine that the file asks for, or that `docker` talks to here.

    Raises RequestError for one that only Docker can be reached at: the dashboard is on that host's loopback.
    """
    address = spec.compose.docker or docker_engine.found_address(tools.environ)
    if not address.startswith(("unix://", "ssh://")):
        raise RequestError(
            f"backend 'compose' needs a Docker host here or over SSH, and `docker` talks to {address}",
            where="$DOCKER_HOST" if tools.environ.get("DOCKER_HOST") else "Docker's current context",
            hint="Write `compose: {docker: ssh://user@host}`; Docker over plain TCP lets everybody in.",
        )
    return address


def refuse_other_host(spec: ClusterSpec, tools: Tools) -> None:
    """Raise RequestError if the cluster is on another Docker host than the file now asks for."""
    record, desired = read(tools), desired_address(spec, tools)
    if record and record.docker != desired:
        raise RequestError(
            f"cluster {spec.name} is on the Docker host {record.docker}; now {desired} is asked for",
            where=str(tools.source) if tools.source else None,
            hint="Remove it there first: invoke cluster.down",
        )
