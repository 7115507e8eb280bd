"""Why nodes do not start, and why Docker refuses: in words that say what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from trainyard import diagnosis
from trainyard.backends import wording
from trainyard.diagnosis import Rule
from trainyard.errors import OutsideError, PrerequisiteError, TrainyardError
from trainyard.seams.docker import containers as docker_containers
from trainyard.seams.docker.containers import Container
from trainyard.seams.docker.engine import Engine

LINT = "What is wrong with it: invoke image.lint"
FREE_PORT = "Leave out compose.dashboard_port: then a free port is taken."
CONFIGURE = "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
# Docker waits longer and longer before it starts a container again; the first two times may be chance.
RESTARTS = 3
TAIL_LINES = 12

# What Docker (moby, runc) says when a container cannot be made or started.
NO_PROGRAM = r"executable file not found|no such file or directory"
RULES = (
    Rule(
        r"bind source path does not exist: ?(?P<path>.*)",
        "the Docker host does not have a directory of compose.mounts: {path}",
        hint="Make it there first, or correct `source`.",
        error=PrerequisiteError,
    ),
    Rule(
        # No driver for such a request is registered (moby, daemon/devices.go).
        r"could not select device driver",
        "driver and container toolkit are there, but Docker does not use the toolkit",
        hint=f"{CONFIGURE} (the restart ends running containers)",
        error=PrerequisiteError,
    ),
    Rule(
        NO_PROGRAM,
        "there is no `{program}` that can be run in the image {image}",
        hint=LINT,
        error=PrerequisiteError,
    ),
    Rule(r"port is already allocated|address already in use", "{doing}", hint=FREE_PORT),
    Rule(
        r"could not find an available",
        "{doing}",
        hint="Docker's address pools are used up; remove networks: docker network prune",
    ),
)


@contextmanager
def explained(*, image: str, program: str = "ray", error: type[TrainyardError] | None = None) -> Iterator[None]:
    """Raise what Docker refuses with its cause, if a rule knows it; as this kind of `error`, or as the rule's."""
    try:
        yield
    except OutsideError as refusal:
        cause = diagnosis.explain(refusal.where or "", RULES, image=image, program=program, doing=refusal.what)
        if cause is None:
            raise
        raise replace(cause, error=error or cause.error).to_error() from refusal


def refuse_dead(engine: Engine, containers: Mapping[str, Container]) -> None:
    """Raise OutsideError with the end of a node's log if it ends again and again, or stands still."""
    for name, container in containers.items():
        if not (restarts_forever(container) or container.state in ("exited", "dead")):
            continue
        # Docker's own log has what `ray start` printed; why it could not is in the last lines of that.
        lines = [line for line in docker_containers.tail(engine, container.name, lines=60) if line.strip()]
        raise OutsideError(
            f"{name} ended while it was starting (exit code {container.exit_code}); its last words:\n"
            + "\n".join(f"    {line}" for line in lines[-TAIL_LINES:] or ["(it said nothing)"]),
            where=f"container {container.name}",
            hint="Is Ray in the image, and does it work there? `invoke image.lint` says.",
        )


def restarts_forever(container: Container) -> bool:
    """Say whether Docker has started it several times, and it does not run now either."""
    return container.state == "restarting" and container.restarts >= RESTARTS


def phrase(container: Container, *, answers: bool, log_tail: str = "") -> str:
    """Return why a node is not up, in Docker's words; "" if it is. `log_tail` is what it said before it ended."""
    tail = f" ({log_tail})" if log_tail else ""
    if container.state in ("exited", "restarting"):
        return f"{container.state}, exit code {container.exit_code}{tail}"
    if container.state != "running":
        return container.state
    if container.health == "unhealthy":
        return "unhealthy"
    if answers:
        return ""
    again = f"; Docker started it again {wording.counted(container.restarts, 'time')}" if container.restarts else ""
    return f"not yet in Ray{again}{tail if again else ''}"


def last_line(engine: Engine, container: Container) -> str:
    if container.state != "restarting" and not container.restarts:
        return ""
    lines = [line.strip() for line in docker_containers.tail(engine, container.id, lines=5) if line.strip()]
    return lines[-1] if lines else ""
