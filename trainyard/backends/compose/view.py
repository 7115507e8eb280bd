"""How a cluster of containers is: what Docker says about each, and what Ray says about all."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.backends import ray_nodes, wording
from trainyard.backends.compose import found
from trainyard.errors import OutsideError
from trainyard.seams.docker import containers as docker_containers
from trainyard.seams.docker.containers import Container
from trainyard.seams.docker.engine import Engine
from trainyard.seams.ray_api import UnreachableError
from trainyard.seams.ssh import connection, forward

LOOPBACK = "127.0.0.1"
# Docker waits longer and longer before it starts a container again; the first two times may be chance.
TRIES = 3
TAIL_LINES = 12
NO_CONTAINER = "no container"


def address(engine: Engine, containers: Mapping[str, Container]) -> str | None:
    """Return where the dashboard answers for us: on loopback, here or through a tunnel that ends with this process."""
    port = found.dashboard_port(containers)
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
    try:
        return ray_nodes.alive(where, token, started=found.started(containers)), ""
    except UnreachableError:
        return frozenset(), "waiting for the dashboard"
    except OutsideError as error:
        return frozenset(), error.what


def is_silent(engine: Engine, containers: Mapping[str, Container], token: str | None) -> bool:
    """Say whether nobody answers for the head: no dashboard, not even one that wants another token."""
    where = address(engine, containers)
    if where is None:
        return True
    try:
        ray_nodes.alive(where, token, started={})
    except UnreachableError:
        return True
    except OutsideError:
        return False
    return False


def refuse_dead(engine: Engine, containers: Mapping[str, Container]) -> None:
    """Raise OutsideError with a node's last words if it ends again and again, or stands still."""
    for name, one in containers.items():
        if not (ends_again_and_again(one) or one.state in ("exited", "dead")):
            continue
        # Docker's own log has what `ray start` printed; why it could not is in the last lines of that.
        said = [line for line in docker_containers.tail(engine, one.name, lines=60) if line.strip()][-TAIL_LINES:]
        raise OutsideError(
            f"{name} ended while it was starting (exit code {one.exit_code}); its last words:\n"
            + "\n".join(f"    {line}" for line in said or ["(it said nothing)"]),
            where=f"container {one.name}",
            hint="Is Ray in the image, and does it work there? `invoke image.lint` says.",
        )


def ends_again_and_again(container: Container) -> bool:
    """Say whether Docker has started it several times, and it does not run now either."""
    return container.state == "restarting" and container.restarts >= TRIES


def seen(container: Container | None, *, answers: bool, last_words: str = "") -> str:
    """Return why a node is not up, in Docker's words; "" if it is. `last_words` are what it said before it ended."""
    if container is None:
        return NO_CONTAINER
    said = f" ({last_words})" if last_words else ""
    if container.state in ("exited", "restarting"):
        return f"{container.state}, exit code {container.exit_code}{said}"
    if container.state != "running":
        return container.state
    if container.health == "unhealthy":
        return "unhealthy"
    if answers:
        return ""
    again = f"; Docker started it again {wording.counted(container.restarts, 'time')}" if container.restarts else ""
    return f"not yet in Ray{again}{said if again else ''}"


def last_words(engine: Engine, container: Container) -> str:
    """Return the last line of a node that ended and is started again."""
    if container.state != "restarting" and not container.restarts:
        return ""
    said = [line.strip() for line in docker_containers.tail(engine, container.id, lines=5) if line.strip()]
    return said[-1] if said else ""
