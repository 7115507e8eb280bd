"""What the nodes of a cluster say: what Docker kept of each container, and Ray's own log files."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from trainyard.backends import contract
from trainyard.backends import logs as ray_logs
from trainyard.backends.compose import record, snapshot
from trainyard.backends.compose.status import address
from trainyard.backends.contract import LogLine, Tools
from trainyard.errors import OutsideError
from trainyard.seams.docker import containers as docker_containers
from trainyard.seams.docker.containers import Container
from trainyard.seams.docker.engine import Engine
from trainyard.spec.cluster import ClusterSpec

POLL_SECONDS = 1.0
# The name under which a container's own output is shown, beside the names of Ray's files.
CONTAINER = "container"


def logs(spec: ClusterSpec, tools: Tools, *, follow: bool) -> Iterator[LogLine]:
    """Return the last lines of every node; with `follow`, then each new one until no node is left."""
    engine = record.connect(spec, tools)
    if not snapshot.nodes(engine, spec.name):
        raise contract.not_up(spec.name)
    return _lines(engine, spec.name, record.token(tools), follow=follow)


def _lines(engine: Engine, name: str, token: str | None, *, follow: bool) -> Iterator[LogLine]:
    since: dict[str, str] = {}
    ray_files = ray_logs.Follower()
    while containers := snapshot.nodes(engine, name):
        for node, container in containers.items():
            yield from _of_container(engine, node, container, since)
        yield from _of_ray(engine, containers, token, ray_files)
        if not follow:
            return
        time.sleep(POLL_SECONDS)


def _of_container(engine: Engine, node: str, container: Container, since: dict[str, str]) -> Iterator[LogLine]:
    last = since.get(container.id)
    lines = None if last else ray_logs.FIRST_LINES
    for stamp, text in docker_containers.stamped(engine, container.id, since=last, lines=lines):
        if last is None or stamp > last:
            since[container.id] = stamp
            yield LogLine(node, CONTAINER, text)


def _of_ray(
    engine: Engine, containers: Mapping[str, Container], token: str | None, ray_files: ray_logs.Follower
) -> Iterator[LogLine]:
    where = address(engine, containers)
    try:
        if where is not None:
            yield from ray_files.fresh(where, token)
    except OutsideError:
        # The containers' own output says why Ray does not answer.
        return
