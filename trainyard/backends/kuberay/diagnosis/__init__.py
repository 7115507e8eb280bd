"""The one cause why what should run does not: a table of rules per kind, the cause before its consequences.

Kubernetes knows it, and says it in a dozen places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainyard.backends import wording
from trainyard.backends.kuberay import naming, pods, replicas
from trainyard.backends.kuberay.debounce import MINUTE
from trainyard.backends.kuberay.diagnosis.container import (
    explain_container,
    explain_pull,
    explain_unprepared,
    image_of,
    log_tail,
)
from trainyard.backends.kuberay.diagnosis.host import NOT_READY, explain_end, explain_host, explain_scheduling
from trainyard.backends.kuberay.diagnosis.operator import explain_admission, explain_operator
from trainyard.backends.kuberay.pods import Object
from trainyard.backends.kuberay.snapshot import Snapshot
from trainyard.diagnosis import Diagnosis
from trainyard.errors import TrainyardError

WAITS_FOR_HEAD = "wait"
# How messages end whose log comes below.
LOG_FOLLOWS = "; the end of its log:"


def of_cluster(snapshot: Snapshot) -> tuple[Diagnosis, ...]:
    """Return why a Ray cluster is not ready, the first cause first: the head's come before its workers', which wait."""
    return (*explain_operator(snapshot), *_of_pods(snapshot))


def of_deployment(snapshot: Snapshot) -> tuple[Diagnosis, ...]:
    """Return why a Deployment (`snapshot.owner`) has no pod that is ready, the first cause first."""
    refused = pods.condition(snapshot.owner or {}, "ReplicaFailure")
    found = [explain_admission(str(refused.get("message") or ""), what="its pod")]
    return (*(found if refused.get("status") == "True" else ()), *_of_pods(snapshot))


def of_pod(pod: Object, snapshot: Snapshot) -> Diagnosis | None:
    """Return why a pod is not ready, None if nothing is wrong with it (yet)."""
    if pods.is_ready(pod):
        return None
    found = explain_host(pod, snapshot.hosts)
    # One that is being deleted stays only if its host does not say that it is gone.
    if found is None and not pods.is_leaving(pod):
        found = _of_running(pod, snapshot)
    if found is None:
        return None
    return replace(found, nodes=(snapshot.name(pod),), hosts=(pods.host(pod),) if pods.host(pod) else ())


def to_error(cause: Diagnosis, where: str) -> TrainyardError:
    hosts = f", on {wording.named(cause.hosts)}" if cause.hosts else ""
    return cause.to_error(f"{where}{hosts}" + (f": {cause.raw}" if cause.raw else ""))


def _of_pods(snapshot: Snapshot) -> Sequence[Diagnosis]:
    spare = replicas.spare(snapshot.owner, snapshot.pods)
    judged = sorted((pod for pod in snapshot.pods if pods.uid(pod) not in spare), key=lambda pod: not pods.is_head(pod))
    causes = [cause for cause in (of_pod(pod, snapshot) for pod in judged) if cause]
    if not any(cause.key == NOT_READY for cause in causes):
        return causes
    # While a host may come back, a pod that found no room did not look for it there.
    return [replace(cause, tolerates=max(cause.tolerates, MINUTE)) for cause in causes]


def _of_running(pod: Object, snapshot: Snapshot) -> Diagnosis | None:
    return (
        explain_scheduling(pod, wait=snapshot.wait_for_machines)
        or explain_end(pod)
        or _of_containers(pod, snapshot)
        or explain_unprepared(pod, snapshot)
        or _of_waiting(pod, snapshot)
    )


def _of_containers(pod: Object, snapshot: Snapshot) -> Diagnosis | None:
    for container in pods.containers(pod):
        found = explain_pull(container, image_of(pod, container), snapshot.events_of(pod))
        found = found or explain_container(pod, container, snapshot)
        if found:
            return found
    return None


def _of_waiting(pod: Object, snapshot: Snapshot) -> Diagnosis | None:
    """Return why a worker waits for a head that is ready, in KubeRay's container, which asks every 5 s."""
    if snapshot.head is None or not pods.is_ready(snapshot.head):
        return None
    if not any(each.name == naming.WAIT_CONTAINER and each.running_since for each in pods.containers(pod)):
        return None
    return Diagnosis(
        "cannot reach the head, which is ready; when asked from there:",
        "Does the cluster's DNS answer (kubectl get pods -n kube-system), does no NetworkPolicy stand between the "
        "pods, and is the head's token still the one in its Secret (`cluster.up --recreate` gives all the same)?",
        summary="waits for the head, which is ready",
        key=WAITS_FOR_HEAD,
        tolerates=MINUTE,
        log_tail=lambda: log_tail(snapshot.probe(pod)),
    )
