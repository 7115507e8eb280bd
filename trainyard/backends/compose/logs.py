"""What the nodes of a cluster say: what Docker kept of each container, and Ray's own log files."""

from __future__ import annotations

import time
from collections.abc import Iterator

from trainyard.backends import logs
from trainyard.backends.compose import found, view
from trainyard.backends.contract import LogLine
from trainyard.errors import OutsideError
from trainyard.seams.docker import containers as docker_containers
from trainyard.seams.docker.containers import Container
from trainyard.seams.docker.engine import Engine

POLL_SECONDS = 1.0
FIRST_LINES = 20
# The name under which a container's own output is shown, beside the names of Ray's files.
CONTAINER = "container"


def lines(engine: Engine, name: str, token: str | None, *, follow: bool) -> Iterator[LogLine]:
    """Return the last lines of every node; with `follow`, then each new one until no node is left."""
    since: dict[str, str] = {}
    ray_files = logs.Follower()
    while containers := found.nodes(engine, name):
        for node, one in containers.items():
            yield from _of_container(engine, node, one, since)
        yield from _of_ray(engine, containers, token, ray_files)
        if not follow:
            return
        time.sleep(POLL_SECONDS)


def _of_container(engine: Engine, node: str, one: Container, since: dict[str, str]) -> Iterator[LogLine]:
    last = since.get(one.id)
    for stamp, text in docker_containers.stamped(engine, one.id, since=last, lines=None if last else FIRST_LINES):
        if last is None or stamp > last:
            since[one.id] = stamp
            yield LogLine(node, CONTAINER, text)


def _of_ray(
    engine: Engine, containers: dict[str, Container], token: str | None, ray_files: logs.Follower
) -> Iterator[LogLine]:
    where = view.address(engine, containers)
    if where is None:
        return
    try:
        yield from ray_files.fresh(where, token)
    except OutsideError:
        # The containers' own output says why Ray does not answer.
        return
