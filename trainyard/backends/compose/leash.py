"""The leash in Docker: a container that removes its cluster and itself."""

from __future__ import annotations

import json
from datetime import datetime

from pydantic import TypeAdapter
from trainyard_runner.leash import HOLDS

from trainyard.backends.compose import diagnosis, naming
from trainyard.backends.compose.desired import DASHBOARD_PORT
from trainyard.backends.contract import LeashStatus
from trainyard.backends.shared.leash import settings, source
from trainyard.seams.docker import containers as docker_containers
from trainyard.seams.docker.engine import Engine

SOCKET = "/var/run/docker.sock"
TOKEN_FILE = "/run/trainyard-token"  # noqa: S105 (its path, not its value)
# The engine's times may have nine digits of a second, which Python 3.10's fromisoformat rejects.
_TIME = TypeAdapter(datetime)


def observe(engine: Engine, cluster: str) -> LeashStatus | None:
    """Ask the engine for the leash; None without a container."""
    container = docker_containers.container(engine, naming.container(cluster, "leash"))
    if container is None or naming.LEASH not in container.labels:
        return None
    written = json.loads(container.labels[naming.LEASH])
    log = docker_containers.tail(engine, container.id)
    problem = ""
    if container.state != "running" or not any(line.endswith(HOLDS) for line in log):
        state = diagnosis.describe(container) or "starting"
        last_line = [line for line in log if line.strip()][-1:]
        problem = ": ".join([f"container {container.name}: {state}", *last_line])
    return LeashStatus(written["idle"], written["deadline"], moment(container.started), problem)


def start(
    engine: Engine, cluster: str, leash: LeashStatus, *, image: str, owner: str, token: str | None
) -> None:
    """Replace the leash's container.

    The container runs as root with the engine's socket, which gives it power
    over the whole host. So it runs no job, and opens no port.
    """
    name = naming.container(cluster, "leash")
    labels = naming.common(cluster, owner)
    remove(engine, cluster)

    target = {
        "socket": SOCKET,
        "labels": [f"{key}={value}" for key, value in labels.items()],
        "network": naming.project(cluster),
        "me": name,
    }

    token_file = None
    if token:
        token_file = TOKEN_FILE
    given = settings(
        leash,
        dashboard=f"http://head:{DASHBOARD_PORT}",
        token_file=token_file,
        docker=target,
    )

    # A remote host is assumed to use the default path of the socket.
    socket = SOCKET
    if engine.is_here:
        socket = engine.address.removeprefix("unix://")
    new = docker_containers.NewContainer(
        image=image,
        entrypoint=source(),
        command=[given],
        labels={**labels, naming.LEASH: settings(leash)},
        volumes={socket: SOCKET},
        network=naming.project(cluster),
        user="0:0",
    )

    docker_containers.create(engine, name, new)
    if token:
        docker_containers.put_files(engine, name, {TOKEN_FILE: token.encode()})
    docker_containers.start(engine, name)


def remove(engine: Engine, cluster: str) -> None:
    docker_containers.remove(engine, naming.container(cluster, "leash"))


def moment(written: str) -> float | None:
    """Convert the engine's timestamp to Unix seconds; "" becomes None."""
    if written:
        return _TIME.validate_python(written).timestamp()
    return None
