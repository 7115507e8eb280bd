"""Why nodes do not start, and why Docker rejects a command, with hints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from trainyard import diagnosis
from trainyard.backends.shared.single_host import ended
from trainyard.diagnosis import Rule
from trainyard.errors import OutsideError, PrerequisiteError, RequestError, TrainyardError
from trainyard.seams.docker import containers as docker_containers
from trainyard.seams.docker.containers import Container
from trainyard.seams.docker.engine import Engine
from trainyard.wording import counted

# Docker restarts a container that ends, each time after a longer wait. After this many restarts the
# node is broken; fewer may be chance.
RESTARTS = 3
TAIL_LINES = 12
_ANOTHER_NAME = "your cluster another name (`name:` in its file)"

# Rules for Docker's texts (moby, runc) about a container that cannot be made or started.
RULES = (
    Rule(
        r"bind source path does not exist: ?(?P<path>.*)",
        "the Docker host does not have a directory of compose.mounts: {path}",
        hint="Make it there first, or correct `source`.",
        error=PrerequisiteError,
    ),
    Rule(
        # Docker prints this if no driver for GPUs is registered (moby, daemon/devices.go).
        r"could not select device driver",
        "Docker cannot give a container GPUs there: NVIDIA's container toolkit is missing, or "
        "Docker does not use it",
        hint="Install nvidia-container-toolkit (from NVIDIA's repository), then: "
        "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker "
        "(the restart ends running containers)",
        error=PrerequisiteError,
    ),
    Rule(
        r"executable file not found|no such file or directory",
        "the image {image} has no `{program}` that can be run",
        hint="What is wrong with it: trainyard image.lint",
        error=PrerequisiteError,
    ),
    Rule(
        r'container name "/(?P<container>[^"]+)" is already in use',
        "a container that this cluster did not make has the name of a node: {container}",
        hint="See what it is: docker inspect {container}. Rename or remove it (docker rename, "
        f"docker rm), or give {_ANOTHER_NAME}.",
        error=RequestError,
    ),
    Rule(
        r"network (?P<network>\S+) was found but has incorrect label",
        "another network has the name of this cluster's network: {network}",
        hint="See what it is: docker network inspect {network}. Remove it (docker network rm), or "
        f"give {_ANOTHER_NAME}.",
        error=RequestError,
    ),
    Rule(
        r"127\.0\.0\.1:(?P<port>\d+).*(?:port is already allocated|address already in use)",
        "port {port} of the Docker host is taken by another program or container",
        hint="Leave out compose.dashboard_port: then a free port is taken.",
    ),
)


@contextmanager
def explained(
    *, image: str, program: str = "ray", error: type[TrainyardError] | None = None
) -> Iterator[None]:
    """Replace the block's OutsideError by the cause that a rule finds, if any.

    `error` overrides the rule's class.
    """
    try:
        yield
    except OutsideError as refusal:
        cause = diagnosis.explain(refusal.where or "", RULES, image=image, program=program)
        if cause is None:
            raise
        raise replace(cause, error=error or cause.error).to_error() from refusal


def end_reason(engine: Engine, name: str, container: Container) -> OutsideError:
    # Docker's log of the container has the output of `ray start`, which ends with the reason.
    log = docker_containers.tail(engine, container.name, lines=60)
    lines = [line for line in log if line.strip()]
    return OutsideError(
        ended(name, lines[-TAIL_LINES:], code=container.exit_code),
        where=f"container {container.name}",
        hint="Check whether Ray works in the image: trainyard image.lint",
    )


def runs(container: Container) -> bool:
    """Say whether a container runs."""
    if container.state == "restarting":
        return container.restarts < RESTARTS
    return container.state == "running"


def describe(container: Container) -> str:
    """Describe a container's state; "" if it runs and was never restarted."""
    if container.state in ("exited", "restarting"):
        return f"{container.state}, exit code {container.exit_code}"
    if container.state != "running":
        return container.state
    if container.restarts:
        return f"Docker started it again {counted(container.restarts, 'time')}"
    return ""
