"""How a cluster on Kubernetes is, the endpoint that runs use, and what its nodes say."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from trainyard import versions
from trainyard.backends import record, wording
from trainyard.backends.contract import ClusterStatus, LogLine, NodeStatus, Tools
from trainyard.backends.kuberay import gpu_checks, groups, location, naming, objects, pods
from trainyard.backends.kuberay import snapshot as snapshots
from trainyard.backends.kuberay.dashboard import Dashboard
from trainyard.backends.kuberay.diagnosis import operator
from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.pods import Object
from trainyard.backends.kuberay.snapshot import Snapshot, cluster_pods, if_allowed, side_by_side
from trainyard.backends.logs import Follower
from trainyard.backends.ray_nodes import cluster_state
from trainyard.diagnosis import merged
from trainyard.endpoint import Endpoint
from trainyard.errors import NotReadyError, OutsideError
from trainyard.seams.kube.errors import GoneError
from trainyard.seams.ray_api import RefusedError
from trainyard.spec.cluster import ClusterSpec

# How a kubelet begins that cannot connect to a pod's port (kubelet/pkg/cri/streaming/portforward).
_KUBELET = "error forwarding port"
POLL_SECONDS = 1.0
# How long the API server may be away while somebody follows: as long as it may for a run that is followed.
AWAY_SECONDS = 180.0
FIRST_LINES = 20
# The container's output is named after it, beside the names of Ray's files; that of its former run has this before it.
FORMER = "former "


def status(spec: ClusterSpec, tools: Tools, dashboard: Dashboard) -> ClusterStatus:
    """Ask Kubernetes about every node that the file names or that has a pod, and Ray about all."""
    where = dashboard.location
    with ThreadPoolExecutor(2) as threads:
        # Not everybody who may look at pods may read Secrets.
        reading = threads.submit(lambda: if_allowed(lambda: objects.token(where)).found)
        snapshot = snapshots.read(where)
        token = reading.result()
    alive, problem = _ask_ray(dashboard, token, snapshot)
    nodes = groups.statuses(groups.declared(spec, snapshot), snapshot, alive)
    # Of a head that ends again and again, the container runs for a moment.
    runs = _runs(snapshot.head) and not any(node.group == groups.HEAD and node.state == "broken" for node in nodes)
    return ClusterStatus(
        name=spec.name,
        backend=tools.backend,
        state=cluster_state(node.state for node in nodes),
        nodes=nodes,
        address=dashboard.address() if runs else None,
        token_command=_token_command(where, tools) if token else None,
        simulated_gpus=_annotation(snapshot, naming.SIMULATED) == "true",
        tunnel=_tunnel(where) if runs else None,
        detail=_joined([*_problems(snapshot), *_node_problems(nodes, asked=not problem), problem]),
        remark=location.moved(tools, where.section),
        differences=tuple(groups.differences(spec, snapshot)),
        token=token,
    )


def connect(spec: ClusterSpec, dashboard: Dashboard) -> Endpoint:
    """Return the endpoint, a port-forward that ends with this process. Raises NotReadyError if there is none."""
    where = dashboard.location
    with ThreadPoolExecutor(2) as threads:
        reading = threads.submit(objects.token, where)
        snapshot = snapshots.read(where, with_events=False)
        token = reading.result()
    if snapshot.owner is None or not _runs(snapshot.head):
        raise _not_up(where)
    made = groups.made(snapshot)
    return Endpoint(
        cluster=spec.name,
        address=dashboard.address(),
        token=token,
        simulated_gpus=_annotation(snapshot, naming.SIMULATED) == "true",
        expected=tuple(groups.expected(made)),
        ray_version=versions.RAY,
        image=_annotation(snapshot, naming.IMAGE),
        tunnel=_tunnel(where),
        down=tuple(groups.down(made, snapshot)),
        checks=lambda: gpu_checks.checks(where, spec),
        quick_checks=lambda: gpu_checks.quick_checks(where, spec),
        is_in_reach=where.kube.answers,
        names_change=True,
        refused=f"Secret {naming.token_secret(where.name)} in {where} holds another token than the nodes were started "
        "with. To make them anew, which ends all that runs: invoke cluster.up --recreate",
    )


def logs(dashboard: Dashboard, *, follow: bool) -> Iterator[LogLine]:
    where = dashboard.location
    if not snapshots.cluster_pods(where):
        raise _not_up(where)
    found = lines(dashboard, objects.token(where), follow=follow)
    return found if follow else _or_why_none(found, where)


def _or_why_none(found: Iterator[LogLine], where: Location) -> Iterator[LogLine]:
    line = None
    for line in found:
        yield line
    if line is None:
        raise NotReadyError(f"cluster {where.name} has said nothing yet{_why(where)}")


def _not_up(where: Location) -> NotReadyError:
    return NotReadyError(f"cluster {where.name} is not up{_why(where)}", hint="Make it: invoke cluster.up")


def _why(where: Location) -> str:
    """Return what is wrong, or what the nodes do: `: head pulls the image; cpu-a, cpu-b wait for the head`."""
    snapshot = snapshots.read(where)
    text = _joined([*_problems(snapshot), groups.text(snapshot)])
    return f": {text}" if text else ""


def _problems(snapshot: Snapshot) -> Iterator[str]:
    for cause in merged(operator.explain_operator(snapshot)):
        # For how long the operator has been silent cannot be known at one moment.
        yield cause.summary if cause.key == operator.KEY else cause.sentence()


def _node_problems(nodes: tuple[NodeStatus, ...], *, asked: bool) -> Iterator[str]:
    """Return why nodes are not up, each cause once; `asked`: Ray has said which nodes it has."""
    causes: dict[str, list[str]] = {}
    for node in nodes:
        if node.detail and node.detail != groups.NO_POD and (asked or node.detail != groups.NOT_IN_RAY):
            causes.setdefault(node.detail, []).append(node.name)
    yield from (f"{wording.named(names)}: {cause}" for cause, names in causes.items())


def _ask_ray(dashboard: Dashboard, token: str | None, snapshot: Snapshot) -> tuple[frozenset[str], str]:
    """Return the names of the nodes that Ray itself calls alive, and why there are none."""
    if snapshot.owner is None:
        return frozenset(), ""
    if not _runs(snapshot.head):
        return frozenset(), "the head does not run"
    secret = f"Secret {naming.token_secret(dashboard.location.name)}"
    try:
        return dashboard.alive(token, snapshot.pods), ""
    except RefusedError:
        if token is None:
            why = f"its token is in {secret}, which does not exist or may not be read by you"
        else:
            why = f"{secret} holds another token than the nodes were started with"
        return frozenset(), f"Ray does not say which nodes it has: {why}"
    except OutsideError as error:
        raw = dashboard.last_error() or error.what
        # A kubelet answers with what every layer below it said.
        return frozenset(), "nothing listens on the head's dashboard port" if _KUBELET in raw else raw


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(filter(None, texts))


def _tunnel(where: Location) -> str:
    return f"Kubernetes ({where})"


def _runs(head: Object | None) -> bool:
    return head is not None and pods.phase(head) == "Running" and not pods.is_leaving(head)


def _annotation(snapshot: Snapshot, name: str) -> str | None:
    annotations = (snapshot.owner or {"metadata": {}})["metadata"].get("annotations") or {}
    return str(annotations[name]) if name in annotations else None


def _token_command(where: Location, tools: Tools) -> str:
    """Return the command that prints the cluster's token, for who may read its Secret."""
    command = ["kubectl"]
    if where.section.kubeconfig:
        command += ["--kubeconfig", location.kubeconfig(tools, where.section) or where.section.kubeconfig]
    if where.kube.context:
        command += ["--context", where.kube.context]
    command += ["--namespace", where.namespace, "get", "secret", naming.token_secret(where.name)]
    command += ["-o", f"jsonpath={{.data.{record.TOKEN_KEY}}}"]
    return f"{shlex.join(command)} | base64 -d"


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
    containers, ray_files = _Containers(location), Follower()
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
        runs = [run for pod in found for run in _container_runs(pod) if run.key not in self._over]
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


def _container_runs(pod: Object) -> Iterator[_Run]:
    for container in pods.containers(pod):
        if container.last:
            yield _Run(pod, container.name, container.restarts - 1, former=True)
        if container.running_since or container.ended:
            yield _Run(pod, container.name, container.restarts, former=False)


def _of_ray(dashboard: Dashboard, token: str | None, ray_files: Follower) -> Iterator[LogLine]:
    try:
        yield from ray_files.fresh(dashboard.address(), token)
    except OutsideError:
        # The containers' own output says why Ray does not answer.
        return
