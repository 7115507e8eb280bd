"""A cluster's status, its nodes' logs, and the endpoint that runs use."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from trainyard_runner.wire.events import Check

from trainyard import versions
from trainyard.backends.contract import ClusterStatus, LogLine, NodeStatus, Site, pick
from trainyard.backends.kuberay import (
    groups,
    leash,
    location,
    naming,
    nodes,
    objects,
    ownership,
    pods,
)
from trainyard.backends.kuberay import snapshot as snapshots
from trainyard.backends.kuberay.dashboard import Dashboard
from trainyard.backends.kuberay.diagnosis.operator import explain_operator
from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.pods import Container
from trainyard.backends.kuberay.snapshot import (
    Snapshot,
    cluster_pods,
    if_allowed,
    node_pods,
)
from trainyard.backends.shared import leash as leashes
from trainyard.backends.shared import record
from trainyard.backends.shared.logs import TAIL_LINES, LogFile, followed, ray_files
from trainyard.backends.shared.ray_nodes import client_port, cluster_state
from trainyard.endpoint import Endpoint
from trainyard.errors import NotReadyError, OutsideError, PrerequisiteError
from trainyard.seams.kube.types import NODE, Object
from trainyard.seams.threads import side_by_side
from trainyard.spec.cluster import ClusterSpec

# In the logs, the file name of a container's output is the container's name, with this prefix for
# the former run.
FORMER = "former "
DEVICE_PLUGIN = (
    "Does NVIDIA's device plugin run there? It withdraws broken GPUs: kubectl describe node {host}"
)


class _Run(NamedTuple):
    pod: Object
    container: Container
    is_former: bool


def status(spec: ClusterSpec, site: Site, dashboard: Dashboard) -> ClusterStatus:
    """Return the status of every node that the file names or that has a pod.

    Asks Kubernetes, and Ray through a port-forward.
    """
    where = dashboard.location
    snapshot = snapshots.read(where)
    # The user may read pods, but perhaps not Secrets.
    token = if_allowed(objects.token, where)
    alive, problem = _ask_ray(dashboard, token, snapshot)
    declared = groups.of_file(spec, snapshot.owner).values()
    node_statuses = nodes.statuses(declared, snapshot, alive)
    now = ClusterStatus(
        name=spec.name,
        backend=site.backend,
        state=cluster_state(node.state for node in node_statuses),
        nodes=node_statuses,
        token=token,
    )

    if token:
        now = replace(now, token_command=_token_command(where, site))
    # A head in a crash loop is broken, although its container may run now.
    is_broken = any(node.group == groups.HEAD and node.state == "broken" for node in node_statuses)
    if _runs(snapshot.head) and not is_broken:
        now = replace(now, address=dashboard.address(), tunnel=_tunnel(where))
    if snapshot.owner is None:
        return now

    present_leash = leash.observe(where)
    details = (_progress(snapshot, node_statuses), problem)
    differences = (
        *groups.differences(spec, snapshot.owner),
        *leashes.differences(spec, leash.made(snapshot.owner), present_leash),
    )
    return replace(
        now,
        simulated_gpus=pods.annotations_of(snapshot.owner).get(naming.SIMULATED) == "true",
        detail="; ".join(filter(None, details)),
        differences=differences,
        leash=present_leash,
        owner=ownership.named_by(snapshot.owner),
    )


def connect(spec: ClusterSpec, dashboard: Dashboard) -> Endpoint:
    """Return the endpoint: a port-forward that ends with this process.

    Raises NotReadyError if no head runs.
    """
    where = dashboard.location
    snapshot = snapshots.read(where)
    made = groups.of_cluster(snapshot.owner).values()
    # The caller asks Ray, so here every pod that runs Ray counts as alive.
    running = frozenset(map(naming.node_name, filter(pods.runs_ray, snapshot.pods)))
    node_statuses = nodes.statuses(made, snapshot, running)
    if snapshot.owner is None or not _runs(snapshot.head):
        what = f"cluster {where.name} is not up"
        progress = _progress(snapshot, node_statuses)
        if progress:
            what += f": {progress}"
        raise NotReadyError(what, hint="Make it: trainyard cluster.up")

    annotations = pods.annotations_of(snapshot.owner)
    expected = tuple(nodes.expected(made, node_statuses))
    optional = {node.name for node in expected if node.optional}
    down = []
    for node in node_statuses:
        if node.state in ("absent", "broken", "starting") and node.name not in optional:
            down.append((node.name, node.detail))

    return Endpoint(
        cluster=spec.name,
        address=dashboard.address(),
        token=objects.token(where),
        simulated_gpus=annotations.get(naming.SIMULATED) == "true",
        expected=expected,
        ray_version=versions.RAY,
        image=annotations.get(naming.IMAGE),
        tunnel=_tunnel(where),
        down=tuple(down),
        checks=lambda: gpu_checks(where, snapshot.pods),
        is_in_reach=where.kube.answers,
        names_change=True,
        refused=f"Secret {naming.token_secret(where.name)} in {where} holds another token than the "
        "nodes were started with: it was changed, or deleted and made again. docs/tokens.md says "
        "how to restore the nodes' token; or give all nodes the new one, which ends all that runs: "
        "trainyard cluster.up --recreate.",
        ray_address=lambda: dashboard.ray_client(client_port(spec.head)),
    )


def gpu_checks(where: Location, cluster_pods: Iterable[Object]) -> tuple[Check, ...]:
    """Check that each host offers the GPUs that the cluster's pods there hold.

    A check is skipped if the user may not read hosts.
    """
    resource = where.section.gpu_resource
    holders = [pod for pod in cluster_pods if _runs(pod) and pods.gpus(pod, resource)]

    def check(holder: Object) -> Check:
        node = naming.node_name(holder)
        host = pods.host(holder)
        try:
            found = where.kube.get(NODE, host) or {}
        except PrerequisiteError as error:
            return Check("allocatable", node, True, error.what, skipped=True)

        offer = pods.offered(found, resource)
        needed = sum(pods.gpus(pod, resource) for pod in holders if pods.host(pod) == host)
        detail = f"Kubernetes node {host} offers {offer} {resource}"
        if offer >= needed:
            return Check("allocatable", node, True, detail)

        detail += f", and the cluster holds {needed} there"
        hint = DEVICE_PLUGIN.format(host=host)
        return Check("allocatable", node, False, detail, hint=hint)

    return tuple(side_by_side(check, holders))


def _progress(snapshot: Snapshot, node_statuses: Sequence[NodeStatus]) -> str:
    """Join the operator's problems, then the nodes' details."""
    problems = [cause.summary for cause in explain_operator(snapshot)]
    return "; ".join(filter(None, (*problems, nodes.text(node_statuses))))


def _ask_ray(
    dashboard: Dashboard, token: str | None, snapshot: Snapshot
) -> tuple[frozenset[str], str]:
    """Return the names of living nodes, and why Ray was silent, or ""."""
    if not _runs(snapshot.head):
        return frozenset(), "the head does not run"
    try:
        return dashboard.alive(token, snapshot.pods), ""
    except OutsideError as error:
        return frozenset(), dashboard.last_error() or error.what


def _tunnel(where: Location) -> str:
    return f"Kubernetes ({where})"


def _runs(head: Object | None) -> bool:
    return head is not None and pods.is_running(head)


def _token_command(where: Location, site: Site) -> str:
    """Return a command that prints the token if the user may read Secrets."""
    secret = ["--namespace", where.namespace, "get", "secret", naming.token_secret(where.name)]
    secret += ["-o", f"jsonpath={{.data.{record.TOKEN_KEY}}}"]
    return f"{location.kubectl(where)} {shlex.join(secret)} | base64 -d"


def logs(dashboard: Dashboard, *, follow: bool, node: str = "") -> Iterator[LogLine]:
    """Return the last log lines of all nodes, or of `node`.

    With `follow`, new lines come until no pod is left. Raises NotReadyError
    without pods, UnknownNodeError for an unknown `node`.
    """
    where = dashboard.location
    found = node_pods(where)
    if not found:
        raise NotReadyError(
            f"cluster {where.name} is not up: it has no pods", hint="Make it: trainyard cluster.up"
        )
    if node:
        pick(found, node, cluster=where.name)
    token = objects.token(where)

    def listed() -> list[Object]:
        return [pod for pod in cluster_pods(where) if node in ("", naming.node_name(pod))]

    def read() -> Iterator[LogFile]:
        runs: list[_Run] = []
        for pod in listed():
            runs += _runs_of(pod)
        yield from side_by_side(partial(_file, where), runs)
        # If Ray does not answer, the containers' output above says why.
        with suppress(OutsideError):
            yield from ray_files(dashboard.address(), token, node)

    return followed(read, lambda: follow and bool(listed()))


def _file(where: Location, run: _Run) -> LogFile:
    pod = run.pod
    container = run.container
    text = where.kube.logs(
        pods.name(pod),
        namespace=where.namespace,
        container=container.name,
        previous=run.is_former,
        lines=TAIL_LINES,
    )
    # The number of earlier restarts identifies a run: the run keeps its key when a restart makes it
    # the former one.
    key = (pods.uid(pod), container.name, container.restarts - run.is_former)
    name = container.name
    if run.is_former:
        name = f"{FORMER}{name}"
    return LogFile(key, naming.node_name(pod), name, text.splitlines())


def _runs_of(pod: Object) -> Iterator[_Run]:
    """Yield containers' last two runs: Kubernetes keeps no other output."""
    for container in pods.containers(pod):
        if container.last:
            yield _Run(pod, container, is_former=True)
        if container.running_since or container.ended:
            yield _Run(pod, container, is_former=False)
