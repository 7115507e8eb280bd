"""What the nodes of a cluster say: what Kubernetes kept of each container, and Ray's own log files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trainyard.backends import logs
from trainyard.backends.contract import LogLine
from trainyard.backends.kuberay import naming, pods
from trainyard.backends.kuberay.dashboard import Dashboard
from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.pods import Object
from trainyard.backends.kuberay.queries import side_by_side
from trainyard.backends.kuberay.snapshot import cluster_pods
from trainyard.errors import OutsideError
from trainyard.seams.kube.errors import GoneError

POLL_SECONDS = 1.0
# How long the API server may be away while somebody follows: as long as it may for a run that is followed.
AWAY_SECONDS = 180.0
FIRST_LINES = 20
# The container's output is named after it, beside the names of Ray's files; that of its former run has this before it.
FORMER = "former "


def lines(
    dashboard: Dashboard,
    token: str | None,
    *,
    follow: bool,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[LogLine]:
    """Return the last lines of every node; with `follow`, then each new one until no pod is left.

    Raises GoneError if the API server does not answer; when it is followed, only if that lasts.
    """
    location = dashboard.location
    containers, ray_files = _Containers(location), logs.Follower()
    last_contact = now()
    while True:
        try:
            found = cluster_pods(location)
            fresh = containers.fresh(found)
        except GoneError:
            if not follow or now() - last_contact > AWAY_SECONDS:
                raise
        else:
            last_contact = now()
            yield from fresh
            if not found:
                return
            yield from _of_ray(dashboard, token, ray_files)
        if not follow:
            return
        sleep(POLL_SECONDS)


@dataclass(frozen=True)
class _Run:
    """One run of a container; `number` counts those before it, so that it stays the same once it is the former one."""

    pod: Object
    container: str
    number: int
    former: bool

    @property
    def key(self) -> tuple[str, str, int]:
        """Return what tells it from every other run."""
        return pods.uid(self.pod), self.container, self.number


class _Containers:
    """Remembers of each run of each container when it printed the last line that was shown."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._since: dict[tuple[str, str, int], str] = {}
        self._over: set[tuple[str, str, int]] = set()
        self._lines: int | None = FIRST_LINES

    def fresh(self, found: Sequence[Object]) -> list[LogLine]:
        """Return what was printed since the last look, all of it; at first, the last lines of each."""
        runs = [run for pod in found for run in _runs(pod) if run.key not in self._over]
        # Nothing is remembered before every answer is known: what was read and not shown is read again.
        answers = side_by_side(self._printed, runs)
        fresh = []
        for run, printed in zip(runs, answers, strict=True):
            self._since[run.key] = printed[-1][0] if printed else self._since.get(run.key, "")
            self._over |= {run.key} if run.former else set()
            file = FORMER + run.container if run.former else run.container
            fresh += [LogLine(naming.node_name(run.pod), file, line) for _, line in printed]
        self._lines = None
        return fresh

    def _printed(self, run: _Run) -> Sequence[tuple[str, str]]:
        return self._location.kube.printed(
            pods.name(run.pod),
            namespace=self._location.namespace,
            container=run.container,
            previous=run.former,
            since=self._since.get(run.key, ""),
            lines=self._lines,
        )


def _runs(pod: Object) -> Iterator[_Run]:
    for container in pods.containers(pod):
        if container.last:
            yield _Run(pod, container.name, container.restarts - 1, former=True)
        if container.running_since or container.ended:
            yield _Run(pod, container.name, container.restarts, former=False)


def _of_ray(dashboard: Dashboard, token: str | None, ray_files: logs.Follower) -> Iterator[LogLine]:
    try:
        yield from ray_files.fresh(dashboard.address(), token)
    except OutsideError:
        # The containers' own output says why Ray does not answer.
        return
