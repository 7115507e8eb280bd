"""Which Docker host a cluster is on: what is written down about it, and the connection to it."""

from __future__ import annotations

import os
import pwd
import socket
from pathlib import Path

from trainyard.backends.contract import Tools
from trainyard.backends.record import read_cluster, read_token, write_cluster
from trainyard.errors import RequestError
from trainyard.seams.docker import engine as docker_engine
from trainyard.seams.docker.engine import Engine
from trainyard.spec.cluster import ClusterSpec


def token_file(tools: Tools) -> Path:
    return tools.state / "token"


def token(tools: Tools) -> str | None:
    return read_token(token_file(tools))


def write(tools: Tools, *, name: str, docker: str, owner: str) -> None:
    """Write down where a cluster is, so that it is found although its file, $DOCKER_HOST or our host name changed."""
    write_cluster(tools.state, tools.backend, {"name": name, "docker": docker, "owner": owner})


def read(tools: Tools) -> dict[str, str] | None:
    return read_cluster(tools.state, tools.backend)


def owner(tools: Tools) -> str:
    """Return who we are to others on the Docker host: user, host, and where we keep clusters; as it was on `up`."""
    if record := read(tools):
        return record["owner"]
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run as anybody
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}:{tools.state.parent.absolute()}"


def connect(spec: ClusterSpec, tools: Tools) -> Engine:
    """Connect to the engine that has the cluster, or is to have it. Raises PrerequisiteError if it does not answer."""
    record = read(tools)
    return docker_engine.connect(tools.environ, address=record["docker"] if record else _desired_address(spec, tools))


def refuse_other_host(spec: ClusterSpec, tools: Tools) -> None:
    """Raise RequestError if the cluster is on another Docker host than the file now asks for."""
    record, desired = read(tools), _desired_address(spec, tools)
    if record and record["docker"] != desired:
        raise RequestError(
            f"cluster {spec.name} is on the Docker host {record['docker']}; now {desired} is asked for",
            where=str(tools.source) if tools.source else None,
            hint="Remove it there first: invoke cluster.down",
        )


def _desired_address(spec: ClusterSpec, tools: Tools) -> str:
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
