"""Why a RayCluster's pods are not made; pure.

The operator's texts are from
ray-operator/controllers/ray/raycluster_controller.go (calculateStatus,
reconcilePods), KubeRay 1.5.1. If the API server rejects a pod
(kubernetes/plugin/pkg/admission), the condition ReplicaFailure and events say
why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from trainyard import wording
from trainyard.backends.kuberay import groups, pods
from trainyard.backends.kuberay.debounce import MINUTE, SOON
from trainyard.backends.kuberay.diagnosis.container import RAY_IN_IMAGE, TRIES
from trainyard.backends.kuberay.snapshot import Snapshot
from trainyard.diagnosis import Diagnosis
from trainyard.errors import PrerequisiteError
from trainyard.seams.kube.types import Object

_BEGINNING = re.compile(r'^.*?pods? "[^"]*" is forbidden: |^.*?error creating: ', re.DOTALL)
# Hints for the API server's rejections, whose texts name no key of the cluster file.
HINTS = {
    r"violates PodSecurity": "`kuberay: {security: {restricted: true, run_as_user: 1000}}` "
    "satisfies it, if the image can run without root.",
    r"serviceaccount \S+ not found|no PriorityClass|RuntimeClass \S+ not found": "Make that "
    "object, or correct kuberay.service_account, priority_class or runtime_class in the cluster "
    "file.",
}


def explain_admission(text: str, *, what: str = "a pod") -> Diagnosis:
    """Explain a rejection by the API server; `what` is the rejected object."""
    plain = " ".join(_BEGINNING.sub("", text).split())
    hint = None
    for pattern, known_hint in HINTS.items():
        if re.search(pattern, plain):
            hint = known_hint
            break

    message = f"{what} was rejected: {plain}"
    return Diagnosis(message, hint, summary=plain, error=PrerequisiteError, tolerates=SOON)


def explain_operator(snapshot: Snapshot) -> Iterator[Diagnosis]:
    """Yield why the operator makes no pods; nothing without a RayCluster.

    First comes at most one reason from the RayCluster or the operator. Then
    come the head and the workers, if KubeRay has replaced them several times.
    """
    cluster = snapshot.owner
    if cluster is None:
        return

    events = _current(cluster, snapshot)
    refused = pods.condition(cluster, "ReplicaFailure")
    warnings = [event for event in events if event.get("type") == "Warning"]

    if refused.get("status") == "True":
        text = str(refused.get("message") or refused.get("reason"))
        yield explain_admission(text.removeprefix(str(refused.get("reason"))))
    elif warnings and snapshot.head is None:
        yield explain_admission(pods.message(warnings[-1]), what="what the cluster needs")
    elif cluster["spec"].get("suspend"):
        yield Diagnosis(
            "is suspended: a queue, or the user who set `suspend`, has not let it start",
            "Is the queue in kuberay.labels full? kuberay.wait_for_machines sets how long to wait.",
            summary="waits for its queue",
            error=PrerequisiteError,
            tolerates=max(MINUTE, snapshot.wait_for_machines),
        )
    elif missing := groups.missing(cluster, snapshot.pods):
        yield Diagnosis(
            f"the KubeRay operator makes no pods for {wording.named(missing)}",
            "Does the operator run and watch this namespace (watchNamespace in its chart's "
            "values)? kubectl get pods -A -l app.kubernetes.io/name=kuberay-operator",
            summary="waits for the KubeRay operator",
            error=PrerequisiteError,
            tolerates=MINUTE,
        )

    yield from _again_and_again(events)


def _current(cluster: Object, snapshot: Snapshot) -> Sequence[Object]:
    """Return events since the RayCluster's last change; its status is ignored.

    `cluster.up` begins with such a change.
    """
    metadata = cluster["metadata"]
    times = []
    for field in metadata.get("managedFields") or ():
        if field.get("subresource") != "status":
            times.append(pods.seconds(field.get("time")))
    changed = max(times, default=pods.seconds(metadata.get("creationTimestamp")))
    return [event for event in snapshot.events_of(cluster) if pods.when(event) >= changed]


def _again_and_again(events: Sequence[Object]) -> Iterator[Diagnosis]:
    """Yield a diagnosis if KubeRay removed failed pods TRIES times or more."""
    for reason, who in (("DeletedHeadPod", "the head"), ("DeletedWorkerPod", "a worker")):
        deaths = []
        for event in events:
            message = pods.message(event)
            if pods.reason(event) == reason and "Pod status: Failed" in message:
                deaths.append(message)

        if len(deaths) >= TRIES:
            yield Diagnosis(
                f"{who} ended {len(deaths)} times, and KubeRay replaces it",
                RAY_IN_IMAGE,
                raw=" ".join(deaths[-1].split()),
                summary=f"{who} ends again and again",
            )
