"""How a cluster on Kubernetes is, the endpoint that runs use, and what its nodes say."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from trainyard_runner.wire.check import Check

from trainyard import versions
from trainyard.backends.contract import ClusterStatus, LogLine, NodeStatus, Tools, pick
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
    side_by_side,
)
from trainyard.backends.shared import leash as leashes
from trainyard.backends.shared import record
from trainyard.backends.shared.logs import TAIL_LINES, Follower, LogFile
from trainyard.backends.shared.ray_nodes import client_port, cluster_state
from trainyard.endpoint import Endpoint
from trainyard.errors import NotReadyError, OutsideError, PrerequisiteError
from trainyard.seams.kube.types import NODE, Object
from trainyard.spec.cluster import ClusterSpec

POLL_SECONDS = 1.0
# The container's output is named after it, beside the names of Ray's files; that of its former run
# has this before it.
FORMER = "former "
DEVICE_PLUGIN = (
    "Does NVIDIA's device plugin run there? It takes GPUs away that are broken: "
    "kubectl describe node {host}"
)
_Run = tuple[Object, Container, bool]


def status(spec: ClusterSpec, tools: Tools, dashboard: Dashboard) -> ClusterStatus:
    """Ask Kubernetes about every node that the file names or that has a pod, and Ray about all."""
    where = dashboard.location
    snapshot = snapshots.read(where)
    # Not everybody who may look at pods may read Secrets.
    token = if_allowed(objects.token, where)
    held = leash.observe(where) if snapshot.owner else None
    alive, problem = _ask_ray(dashboard, token, snapshot)
    every = nodes.statuses(groups.of_file(spec, snapshot.owner).values(), snapshot, alive)
    # Of a head that ends again and again, the container runs for a moment.
    runs = _runs(snapshot.head) and not any(
        node.group == groups.HEAD and node.state == "broken" for node in every
    )

    return ClusterStatus(
        name=spec.name,
        backend=tools.backend,
        state=cluster_state(node.state for node in every),
        nodes=every,
        address=dashboard.address() if runs else None,
        token_command=_token_command(where, tools) if token else None,
        simulated_gpus=_annotation(snapshot, naming.SIMULATED) == "true",
        tunnel=_tunnel(where) if runs else None,
        detail="; ".join(filter(None, (_progress(snapshot, every), problem)))
        if snapshot.owner
        else "",
        differences=(
            *groups.differences(spec, snapshot.owner),
            *leashes.differences(spec, leash.made(snapshot.owner), held),
        ),
        token=token,
        leash=held,
        owner=ownership.named_by(snapshot.owner) if snapshot.owner else "",
    )


def connect(spec: ClusterSpec, dashboard: Dashboard) -> Endpoint:
    """Return the endpoint, a port-forward that ends with this process. Raises NotReadyError if
    there is none.
    """
    where = dashboard.location
    snapshot = snapshots.read(where)
    made = groups.of_cluster(snapshot.owner).values()
    # Ray is asked by whoever uses the endpoint.
    every = nodes.statuses(
        made, snapshot, frozenset(map(naming.node_name, filter(pods.runs_ray, snapshot.pods)))
    )

    if snapshot.owner is None or not _runs(snapshot.head):
        why = _progress(snapshot, every)
        what = f"cluster {where.name} is not up" + (f": {why}" if why else "")
        raise NotReadyError(what, hint="Make it: trainyard cluster.up")

    expected = tuple(nodes.expected(made, every))
    optional = {node.name for node in expected if node.optional}
    down = (
        (node.name, node.detail) for node in every if node.state in ("absent", "broken", "starting")
    )

    return Endpoint(
        cluster=spec.name,
        address=dashboard.address(),
        token=objects.token(where),
        simulated_gpus=_annotation(snapshot, naming.SIMULATED) == "true",
        expected=expected,
        ray_version=versions.RAY,
        image=_annotation(snapshot, naming.IMAGE),
        tunnel=_tunnel(where),
        down=tuple((name, why) for name, why in down if name not in optional),
        checks=lambda: gpu_checks(where, snapshot.pods),
        is_in_reach=where.kube.answers,
        names_change=True,
        refused=f"Secret {naming.token_secret(where.name)} in {where} holds another token than "
        "the nodes were started "
        "with: it was changed, or deleted and made again. docs/tokens.md says how to put theirs "
        "back; "
        "or give all nodes the new one, which ends all that runs: trainyard cluster.up --recreate.",
        ray_address=lambda: dashboard.ray_client(client_port(spec.head)),
    )


def gpu_checks(where: Location, own: Iterable[Object]) -> tuple[Check, ...]:
    """Check of each pod that holds GPUs that its host offers what all pods of the cluster there
    hold together.

    What the user may not ask is no failure, and said.
    """
    resource = where.section.gpu_resource
    held = {}
    for pod in own:
        if _runs(pod):
            held[naming.node_name(pod)] = (pods.host(pod), pods.gpus(pod, resource))

    def check(node: str) -> Check:
        host, _ = held[node]
        try:
            found = where.kube.get(NODE, host) or {}
        except PrerequisiteError as error:
            return Check("allocatable", node, True, error.what, skipped=True)

        offer = pods.offered(found, resource)
        needed = sum(gpus for other, gpus in held.values() if other == host)
        detail = f"Kubernetes node {host} offers {offer} {resource}"

        if offer >= needed:
            return Check("allocatable", node, True, detail)

        hint = DEVICE_PLUGIN.format(host=host)
        return Check(
            "allocatable", node, False, f"{detail}, and the cluster holds {needed} there", hint=hint
        )

    return tuple(side_by_side(check, [node for node, (_, gpus) in held.items() if gpus]))


def _progress(snapshot: Snapshot, every: Sequence[NodeStatus]) -> str:
    """Return what is wrong, and what the nodes do: `head: pulls the image; cpu-a, cpu-b: waits for
    the head`.
    """
    problems = (cause.summary for cause in explain_operator(snapshot))
    return "; ".join(filter(None, (*problems, nodes.text(every))))


def _ask_ray(
    dashboard: Dashboard, token: str | None, snapshot: Snapshot
) -> tuple[frozenset[str], str]:
    """Return the names of the nodes that Ray itself calls alive, and why there are none."""
    if not _runs(snapshot.head):
        return frozenset(), "the head does not run"
    try:
        return dashboard.alive(token, snapshot.pods), ""
    except OutsideError as error:
        return frozenset(), dashboard.last_error() or error.what


def _tunnel(where: Location) -> str:
    return f"Kubernetes ({where})"


def _runs(head: Object | None) -> bool:
    return head is not None and pods.phase(head) == "Running" and not pods.is_leaving(head)


def _annotation(snapshot: Snapshot, name: str) -> str | None:
    annotations = (snapshot.owner or {"metadata": {}})["metadata"].get("annotations") or {}
    if name in annotations:
        return str(annotations[name])
    return None


def _token_command(where: Location, tools: Tools) -> str:
    """Return the command that prints the cluster's token, for who may read its Secret."""
    secret = ["--namespace", where.namespace, "get", "secret", naming.token_secret(where.name)]
    secret += ["-o", f"jsonpath={{.data.{record.TOKEN_KEY}}}"]
    return f"{location.kubectl(where)} {shlex.join(secret)} | base64 -d"


def logs(
    dashboard: Dashboard,
    *,
    follow: bool,
    node: str = "",
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[LogLine]:
    """Return the last lines of every node, or of one; with `follow`, then each new one until no pod
    is left.
    """
    where = dashboard.location
    own = node_pods(where)
    if not own:
        raise NotReadyError(
            f"cluster {where.name} is not up: it has no pods", hint="Make it: trainyard cluster.up"
        )
    if node:
        pick(own, node, cluster=where.name)
    return _lines(dashboard, objects.token(where), sleep if follow else None, node)


def _lines(
    dashboard: Dashboard, token: str | None, sleep: Callable[[float], None] | None, node: str
) -> Iterator[LogLine]:
    where = dashboard.location
    follower = Follower()
    while own := [pod for pod in cluster_pods(where) if node in ("", naming.node_name(pod))]:
        runs = [run for pod in own for run in _runs_of(pod)]
        yield from follower.added(side_by_side(partial(_file, where), runs))
        # The containers' own output says why Ray does not answer.
        with suppress(OutsideError):
            yield from follower.fresh(dashboard.address(), token, node)
        if sleep is None:
            return
        sleep(POLL_SECONDS)


def _file(where: Location, run: _Run) -> LogFile:
    pod, container, former = run
    name = pods.name(pod)
    text = where.kube.logs(
        name, namespace=where.namespace, container=container.name, previous=former, lines=TAIL_LINES
    )
    # A run keeps its number when it becomes the former one.
    key = (pods.uid(pod), container.name, container.restarts - former)
    return LogFile(
        key, naming.node_name(pod), f"{FORMER if former else ''}{container.name}", text.splitlines()
    )


def _runs_of(pod: Object) -> Iterator[_Run]:
    """Return the runs of a pod's containers whose output Kubernetes still has: the one now, and the
    one before.
    """
    for container in pods.containers(pod):
        if container.last:
            yield pod, container, True
        if container.running_since or container.ended:
            yield pod, container, False
