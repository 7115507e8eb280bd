"""Before anything is made or removed: the dashboard's port is free, and a node could run on the Docker host."""

from __future__ import annotations

from trainyard.backends.compose import found
from trainyard.backends.compose.wanted import Wanted
from trainyard.errors import NotReadyError, OutsideError, PrerequisiteError
from trainyard.seams import addresses
from trainyard.seams.docker import containers as docker_containers
from trainyard.seams.docker import once as docker_once
from trainyard.steps import YES, Answer, Step, no

LOOPBACK = "127.0.0.1"
# `ray --version` takes a second; on a busy machine, with an image that was pulled just now, a minute.
SECONDS = 180.0
_NO_MOUNT = "bind source path does not exist"
_NO_PROGRAM = ("executable file not found", "no such file or directory")


def steps(asked: Wanted, *, after: str) -> list[Step]:
    """Return the step that starts Ray's command in a container, with every mount, where a head is to be made.

    A head that fits is proof enough for its workers: image and mounts are the same.
    """
    if "head" not in asked.to_make():
        return []
    tried: list[bool] = []

    def try_it() -> None:
        _try(asked)
        tried.append(True)

    def done() -> Answer:
        return YES if tried else no("not tried yet")

    return [Step("Try the image and the mounts, for a moment", done=done, do=try_it, after=after)]


def refuse_taken_port(asked: Wanted) -> None:
    """Raise PrerequisiteError if somebody else has compose.dashboard_port."""
    port = asked.spec.compose.dashboard_port
    if port is None or "head" not in asked.to_make() or found.dashboard_port(asked.containers()) == port:
        return
    holder = _holder(asked, port)
    if holder:
        raise PrerequisiteError(
            f"port {port} of {LOOPBACK} is taken by {holder}",
            where=f"compose.dashboard_port, Docker host {asked.engine.host}",
            hint="Leave out compose.dashboard_port: then a free port is taken. Or give another one.",
        )


def _holder(asked: Wanted, port: int) -> str | None:
    for one in docker_containers.publishing(asked.engine, port):
        if any(each.outside == port and each.address in (LOOPBACK, *addresses.ANY, "") for each in one.ports):
            return f"the container {one.name}"
    # Nobody but Docker can be asked about another host.
    if not asked.engine.is_here or addresses.is_free(LOOPBACK, port):
        return None
    other = addresses.listener(LOOPBACK, port)
    return f"{other.program} (pid {other.pid})" if other and other.program else "a program of another user"


def _try(asked: Wanted) -> None:
    image = asked.image
    try:
        ended = docker_once.run_once(
            asked.engine,
            image.reference,
            ["--version"],
            entrypoint=["ray"],
            environ=asked.spec.env,
            binds={mount.target: mount.source for mount in asked.spec.compose.mounts},
            seconds=SECONDS,
        )
    except OutsideError as error:
        raise _explained(asked, error) from error
    if ended.code is None:
        raise NotReadyError(f"`ray --version` does not end in the image {image.name}", where=image.reference)
    if ended.code:
        said = (ended.stderr.strip() or ended.stdout.strip() or "(it said nothing)").splitlines()[-1]
        raise PrerequisiteError(
            f"Ray does not start in the image {image.name} (`ray --version`: exit code {ended.code})",
            where=said,
            hint=_lint(asked),
        )


def _explained(asked: Wanted, error: OutsideError) -> OutsideError | PrerequisiteError:
    said = str(error.where)
    if _NO_MOUNT in said:
        return PrerequisiteError(
            f"the Docker host does not have a directory of compose.mounts: {said.partition(_NO_MOUNT)[2].strip(': ')}",
            where=f"Docker host {asked.engine.host}",
            hint="Make it there first, or correct `source`.",
        )
    if any(words in said for words in _NO_PROGRAM):
        return PrerequisiteError(
            f"there is no `ray` that can be run in the image {asked.image.name}",
            where=asked.image.reference,
            hint=_lint(asked),
        )
    return error


def _lint(asked: Wanted) -> str:
    return "What is wrong with it: invoke image.lint"
