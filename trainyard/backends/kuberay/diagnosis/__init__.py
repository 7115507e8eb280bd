"""The one cause why pods do not run: a table of rules per kind, causes before consequences.

Kubernetes knows it, and says it in a dozen places.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trainyard import wording
from trainyard.backends.kuberay import groups, naming, pods
from trainyard.backends.kuberay.debounce import MINUTE, STILL
from trainyard.backends.kuberay.diagnosis.container import (
    CRASH,
    explain_container,
    explain_unprepared,
)
from trainyard.backends.kuberay.diagnosis.host import explain_host, explain_scheduling
from trainyard.backends.kuberay.diagnosis.operator import explain_admission, explain_operator
from trainyard.backends.kuberay.snapshot import Snapshot
from trainyard.diagnosis import Diagnosis
from trainyard.errors import TrainyardError
from trainyard.seams.kube.types import Object

WAITS_FOR_HEAD = "wait"
OPERATOR_CRASHES = (
    "Kubernetes starts it again and again. Was it given what it needs (kuberay.operator.values)?"
)


def of_cluster(snapshot: Snapshot) -> tuple[Diagnosis, ...]:
    """Return why a cluster is not ready: the head's causes first, since its workers wait for it."""
    return (
        *explain_operator(snapshot),
        *_of_pods(groups.awaited(snapshot.owner, snapshot.pods), snapshot),
    )


def of_deployment(snapshot: Snapshot, *, has_run: bool = False) -> tuple[Diagnosis, ...]:
    """Return why a Deployment (`snapshot.owner`) has no pod that is ready, the first cause first.

    One that `has_run` ends whenever it cannot renew its lease, as while control planes leave
    ("leader election lost"), and Kubernetes starts it later each time: after 10 s, 20 s, up to 5
    min.
    """
    refused = pods.condition(snapshot.owner or {}, "ReplicaFailure")
    # On a host that was just started, it cannot reach the API server yet.
    tolerates = STILL if has_run else MINUTE
    causes = tuple(
        replace(cause, hint=OPERATOR_CRASHES, tolerates=tolerates) if cause.key == CRASH else cause
        for cause in _of_pods(snapshot.pods, snapshot)
    )
    if refused.get("status") != "True":
        return causes
    return explain_admission(str(refused.get("message") or ""), what="its pod"), *causes


def of_pod(pod: Object, snapshot: Snapshot) -> Diagnosis | None:
    """Return why a pod is not ready, None if nothing is wrong with it (yet)."""
    if pods.is_ready(pod):
        return None

    cause = explain_host(pod, snapshot.hosts)
    # One that is being deleted stays only if its host does not say that it is gone.
    if cause is None and not pods.is_leaving(pod):
        cause = (
            explain_scheduling(pod, wait=snapshot.wait_for_machines)
            or next(
                filter(
                    None, (explain_container(pod, each, snapshot) for each in pods.containers(pod))
                ),
                None,
            )
            or explain_unprepared(pod, snapshot)
            or _of_waiting(pod, snapshot)
        )

    if cause is None:
        return None

    return replace(
        cause, nodes=(snapshot.name(pod),), hosts=(pods.host(pod),) if pods.host(pod) else ()
    )


def to_error(cause: Diagnosis, where: str) -> TrainyardError:
    if cause.hosts:
        hosts = f", on {wording.named(cause.hosts)}"
    else:
        hosts = ""
    return cause.to_error(f"{where}{hosts}" + (f": {cause.raw}" if cause.raw else ""))


def _of_pods(judged: Iterable[Object], snapshot: Snapshot) -> tuple[Diagnosis, ...]:
    return tuple(cause for pod in judged if (cause := of_pod(pod, snapshot)))


def _of_waiting(pod: Object, snapshot: Snapshot) -> Diagnosis | None:
    """Return that a worker cannot reach a ready head; KubeRay's container asks every 5 s."""
    waits = any(
        each.name == naming.WAIT_CONTAINER and each.running_since for each in pods.containers(pod)
    )
    if not waits or snapshot.head is None or not pods.is_ready(snapshot.head):
        return None

    return Diagnosis(
        "cannot reach the head, which is ready",
        "Does the cluster's DNS answer (kubectl get pods -n kube-system), does no NetworkPolicy "
        "separate the pods, and is the head's token still the one in its Secret (`cluster.up --recreate` "
        "gives all the same)?",
        summary="waits for the head, which is ready",
        key=WAITS_FOR_HEAD,
        tolerates=MINUTE,
    )
