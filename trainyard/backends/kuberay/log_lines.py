"""What the nodes of a cluster say: what Kubernetes kept of each container, and Ray's own log files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from trainyard.backends import ray_logs
from trainyard.backends.contract import LogLine
from trainyard.backends.kuberay import names, site, way_in
from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes.facts import Object
from trainyard.backends.kuberay.pod import Container
from trainyard.backends.kuberay.site import Site
from trainyard.errors import OutsideError

POLL_SECONDS = 1.0
FIRST_LINES = 20
TAIL_LINES = 500
# The container's output is named after it, beside the names of Ray's files; that of its former run has this before it.
FORMER = "former "


def lines(
    where: Site, token: str | None, *, follow: bool, sleep: Callable[[float], None] = time.sleep
) -> Iterator[LogLine]:
    """Return the last lines of every node; with `follow`, then each new one until no pod is left."""
    shown: dict[tuple[str, str, int], list[str]] = {}
    ray_files = ray_logs.Follower()
    while found := site.pods(where):
        for one in found:
            yield from _of_pod(where, one, shown)
        yield from _of_ray(where, token, ray_files)
        if not follow:
            return
        sleep(POLL_SECONDS)


def _of_pod(where: Site, pod: Object, shown: dict[tuple[str, str, int], list[str]]) -> Iterator[LogLine]:
    for container in pods.containers(pod):
        if container.last:
            yield from _fresh(where, pod, container, shown, former=True)
        if container.running_since or container.ended:
            yield from _fresh(where, pod, container, shown, former=False)


def _fresh(
    where: Site, pod: Object, container: Container, shown: dict[tuple[str, str, int], list[str]], *, former: bool
) -> Iterator[LogLine]:
    """Return what a container printed since the last look; what its former run printed is known once it was shown."""
    key = pods.uid(pod), container.name, container.restarts - former
    before = shown.get(key)
    if former and before is not None:
        return
    said = where.kube.logs(
        pods.name(pod), namespace=where.namespace, container=container.name, previous=former, lines=TAIL_LINES
    )
    shown[key] = now = said.splitlines()
    fresh = now[-FIRST_LINES:] if before is None else ray_logs.added(before, now)
    file = FORMER * former + container.name
    yield from (LogLine(names.node_name(pod), file, line) for line in fresh)


def _of_ray(where: Site, token: str | None, ray_files: ray_logs.Follower) -> Iterator[LogLine]:
    try:
        yield from ray_files.fresh(way_in.address(where), token)
    except OutsideError:
        # The containers' own output says why Ray does not answer.
        return
