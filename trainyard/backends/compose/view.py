"""How a cluster of containers is: what Docker says about each, and what Ray says about all."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.backends import answering
from trainyard.backends.compose import found
from trainyard.errors import OutsideError
from trainyard.seams import docker_containers, ssh_tunnel
from trainyard.seams.docker_containers import Container
from trainyard.seams.docker_engine import Engine
from trainyard.seams.ray_api import UnreachableError

LOOPBACK = "127.0.0.1"
# Docker waits longer and longer before it starts a container again; the first two times may be chance.
TRIES = 3
TAIL_LINES = 12


def address(engine: Engine, containers: Mapping[str, Container]) -> str | None:
    """Return where the dashboard answers for us: on loopback, here or through a tunnel that ends with this process."""
    port = found.dashboard_port(containers)
    if port is None:
        return None
    if engine.ssh:
        port = ssh_tunnel.local_port(engine.ssh, port, engine.environ)
    return f"http://{LOOPBACK}:{port}"


def answer(engine: Engine, containers: Mapping[str, Container], token: str | None) -> tuple[frozenset[str], str]:
    """Return the names of the nodes that Ray itself calls alive, and why there are none."""
    where = address(engine, containers)
    if where is None:
        return frozenset(), "the head does not run"
    try:
        return answering.alive(where, token), ""
    except UnreachableError:
        return frozenset(), "waiting for the dashboard"
    except OutsideError as error:
        return frozenset(), error.what


def refuse_dead(engine: Engine, containers: Mapping[str, Container]) -> None:
    """Raise OutsideError with a node's last words if it ends again and again, or stands still."""
    for name, one in containers.items():
        again_and_again = one.state == "restarting" and one.restarts >= TRIES
        if not (again_and_again or one.state in ("exited", "dead")):
            continue
        # Docker's own log has what `ray start` printed; why it could not is in the last lines of that.
        said = [line for line in docker_containers.tail(engine, one.name, lines=60) if line.strip()][-TAIL_LINES:]
        raise OutsideError(
            f"{name} ended while it was starting (exit code {one.exit_code}); its last words:\n"
            + "\n".join(f"    {line}" for line in said or ["(it said nothing)"]),
            where=f"container {one.name}",
            hint="Is Ray in the image, and does it work there? `invoke image.lint` says.",
        )


def seen(container: Container | None, *, answers: bool) -> str:
    """Return why a node is not up, in Docker's words; "" if it is."""
    if container is None:
        return "no container"
    if container.state != "running":
        return f"{container.state}, exit code {container.exit_code}" if container.state == "exited" else container.state
    if container.health == "unhealthy":
        return "unhealthy"
    return "" if answers else "not yet in Ray"
