"""What the nodes of a cluster that comes up do, in a few words; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainyard.backends import wording
from trainyard.backends.kuberay import diagnosis, events, naming, pods, replicas
from trainyard.backends.kuberay.pods import Object
from trainyard.backends.kuberay.snapshot import Snapshot
from trainyard.diagnosis import Diagnosis, merged

PULLS = "pulls the image"
# What a node does, and how several of them do it.
_SEVERAL = {
    "is being removed": "are being removed",
    "waits for a Kubernetes node": "wait for a Kubernetes node",
    PULLS: "pull the image",
    "is being made": "are being made",
    "waits for the head": "wait for the head",
    "ended and is started again": "ended and are started again",
    "starts Ray": "start Ray",
}


def text(snapshot: Snapshot) -> str:
    """Return what is waited for, "" if nothing: `gpu-x7k2p pulls the image; cpu-k2x9v waits for the head`."""
    return "; ".join([*_unmade(snapshot), *_nodes(snapshot)])


def pulls(snapshot: Snapshot) -> bool:
    """Say whether an image is on its way to a pod that is waited for."""
    return any(doing(pod, snapshot) == PULLS for pod in _awaited(snapshot))


def doing(pod: Object, snapshot: Snapshot) -> str:
    """Return what a pod does that is not ready; "" if it is ready."""
    if pods.is_leaving(pod):
        return "is being removed"
    if pods.is_ready(pod):
        return ""
    if not pods.host(pod):
        return "waits for a Kubernetes node"
    containers = pods.containers(pod)
    if any(each.name == naming.WAIT_CONTAINER and each.running_since for each in containers):
        return "waits for the head"
    if any(each.failed and not each.ready for each in containers):
        return "ended and is started again"
    # When what comes before it has ended, the kubelet is about to start Ray.
    if any(each.ended if each.is_init else each.running_since for each in containers):
        return "starts Ray"
    newest = events.newest(snapshot.events_of(pod), "Pulling", "Pulled", "Created")
    return PULLS if newest and events.reason(newest) == "Pulling" else "is being made"


def _awaited(snapshot: Snapshot) -> Iterable[Object]:
    spare = replicas.spare(snapshot.owner, snapshot.pods)
    return [pod for pod in snapshot.pods if pods.uid(pod) not in spare]


def _nodes(snapshot: Snapshot) -> Iterator[str]:
    """Return what is wrong with nodes, then what the others do."""
    problems: list[Diagnosis] = []
    nodes: dict[str, list[str]] = {}
    for pod in _awaited(snapshot):
        cause = diagnosis.of_pod(pod, snapshot)
        # Every worker waits for its head for a while.
        if cause and cause.key != diagnosis.WAITS_FOR_HEAD:
            problems.append(cause)
        elif what := doing(pod, snapshot):
            nodes.setdefault(what, []).append(snapshot.name(pod))
    yield from (cause.sentence().removesuffix(diagnosis.LOG_FOLLOWS) for cause in merged(problems))
    for what, names in nodes.items():
        yield f"{wording.named(names)} {what if len(names) == 1 else _SEVERAL[what]}"


def _unmade(snapshot: Snapshot) -> Iterator[str]:
    """Return which pods the operator has still to make."""
    if snapshot.owner is None:
        return
    missing = replicas.missing(snapshot.owner, snapshot.pods, counts=replicas.minimum(snapshot.owner))
    if missing:
        yield f"KubeRay makes {replicas.named(missing)}"
    elif not replicas.is_observed(snapshot.owner):
        yield "KubeRay looks at the change"
