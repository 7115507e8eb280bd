"""Why pods do not run; each module has the rules for one kind of cause.

Kubernetes spreads its reasons over conditions, container states and events. The
order of the rules puts a cause before its consequences.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trainyard import wording
from trainyard.backends.kuberay import groups, pods
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
OPERATOR_CRASHES = "Kubernetes starts it again and again: check kuberay.operator.values."


def of_cluster(snapshot: Snapshot) -> tuple[Diagnosis, ...]:
    """Return why a cluster is not ready: operator, then head, then workers."""
    return (
        *explain_operator(snapshot),
        *_of_pods(groups.awaited(snapshot.owner, snapshot.pods), snapshot),
    )


def of_deployment(snapshot: Snapshot, *, has_run: bool = False) -> tuple[Diagnosis, ...]:
    """Return why the operator's Deployment (`snapshot.owner`) has no ready pod.

    `has_run`: the operator worked before, so its crashes are tolerated for
    longer. The operator ends when it cannot renew its lease ("leader election
    lost"), such as while control planes leave the cluster. Kubernetes restarts
    it after 10 s, then 20 s, up to 5 min.
    """
    refused = pods.condition(snapshot.owner or {}, "ReplicaFailure")
    # On a host that was just started, the operator crashes until it reaches the API server.
    tolerates = MINUTE
    if has_run:
        tolerates = STILL

    causes = []
    if refused.get("status") == "True":
        causes.append(explain_admission(str(refused.get("message") or ""), what="its pod"))
    for cause in _of_pods(snapshot.pods, snapshot):
        if cause.key == CRASH:
            cause = replace(cause, hint=OPERATOR_CRASHES, tolerates=tolerates)
        causes.append(cause)
    return tuple(causes)


def of_pod(pod: Object, snapshot: Snapshot) -> Diagnosis | None:
    """Return why a pod is not ready; None without a visible fault."""
    if pods.is_ready(pod):
        return None

    cause = explain_host(pod, snapshot.hosts)
    # A leaving pod waits only for its kubelet's report, so only the host can be the cause.
    if cause is None and not pods.is_leaving(pod):
        cause = (
            explain_scheduling(pod, wait=snapshot.wait_for_machines)
            or _of_containers(pod, snapshot)
            or explain_unprepared(pod, snapshot)
            or _of_waiting(pod, snapshot)
        )

    if cause is None:
        return None

    hosts: tuple[str, ...] = ()
    if pods.host(pod):
        hosts = (pods.host(pod),)
    return replace(cause, nodes=(snapshot.name(pod),), hosts=hosts)


def to_error(cause: Diagnosis, where: str) -> TrainyardError:
    if cause.hosts:
        where += f", on {wording.named(cause.hosts)}"
    if cause.raw:
        where += f": {cause.raw}"
    return cause.to_error(where)


def _of_pods(judged: Iterable[Object], snapshot: Snapshot) -> tuple[Diagnosis, ...]:
    causes = (of_pod(pod, snapshot) for pod in judged)
    return tuple(filter(None, causes))


def _of_containers(pod: Object, snapshot: Snapshot) -> Diagnosis | None:
    for container in pods.containers(pod):
        cause = explain_container(pod, container, snapshot)
        if cause:
            return cause
    return None


def _of_waiting(pod: Object, snapshot: Snapshot) -> Diagnosis | None:
    """Return the cause if a worker still waits for a head that is ready.

    KubeRay's init container in the worker (`wait-gcs-ready`) polls the head
    every 5 s.
    """
    if not pods.waits_for_head(pod) or snapshot.head is None or not pods.is_ready(snapshot.head):
        return None

    return Diagnosis(
        "cannot reach the head, which is ready",
        "Does the cluster's DNS answer (kubectl get pods -n kube-system)? Does a NetworkPolicy "
        "separate the pods? Was the token's Secret changed after the head had started (then "
        "`cluster.up --recreate` gives all nodes one token)?",
        summary="waits for the head, which is ready",
        key=WAITS_FOR_HEAD,
        tolerates=MINUTE,
    )
