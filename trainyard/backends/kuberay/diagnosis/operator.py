"""Why the KubeRay operator does not make what a RayCluster asks for; pure.

What it writes: ray-operator/controllers/ray/raycluster_controller.go (calculateStatus, reconcilePods), KubeRay 1.5.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from trainyard.backends import wording
from trainyard.backends.kuberay import events, pods, replicas
from trainyard.backends.kuberay.debounce import MINUTE, SOON
from trainyard.backends.kuberay.diagnosis.admission import explain_admission
from trainyard.backends.kuberay.diagnosis.container import MORE_MEMORY, RAY_IN_IMAGE, TRIES, log_tail
from trainyard.backends.kuberay.pods import Object
from trainyard.backends.kuberay.snapshot import Snapshot
from trainyard.diagnosis import Diagnosis, Rule, explain
from trainyard.errors import PrerequisiteError

KEY = "operator"
_RUNS = "Does it run? kubectl get pods -A -l app.kubernetes.io/name=kuberay-operator"
_REFUSED = {"FailedCreateHeadPod": "the head", "FailedCreateWorkerPod": "a worker"}
_DELETED = {"DeletedHeadPod": "head", "DeletedWorkerPod": "a worker"}
_INVALID = ("InvalidRayClusterSpec", "InvalidRayClusterMetadata", "InvalidRayClusterStatus")


def _tail(match: re.Match[str]) -> Mapping[str, str]:
    return {"tail": log_tail(match["message"])}


# How a pod failed that KubeRay removed, log and all, before anybody could ask it.
DEATHS = (
    Rule(
        r"Reason:OOMKilled,",
        "{who} was killed {again}: it used more than its memory",
        MORE_MEMORY,
        summary="out of memory",
    ),
    Rule(
        r"(?s)ContainerStateTerminated\{ExitCode:(?P<code>\d+),.*?Message:(?P<message>.*?),StartedAt:",
        "{who} ended while it was starting (exit code {code}), {again}; the end of its log:\n{tail}",
        RAY_IN_IMAGE,
        summary="ended with exit code {code}",
        words=_tail,
    ),
    Rule("", "{who} failed {again}", summary="failed {again}"),
)


def explain_operator(snapshot: Snapshot) -> Iterator[Diagnosis]:
    """Return why the operator does not make the pods of a RayCluster, the most certain cause first."""
    cluster = snapshot.owner
    if cluster is None:
        return
    if refused := refusal(cluster):
        reason = str(pods.condition(cluster, "ReplicaFailure").get("reason"))
        yield explain_admission(refused.removeprefix(reason).strip(), what=_REFUSED.get(reason, "a pod"))
    yield from _not_made(cluster, snapshot)
    yield from _again_and_again(cluster, snapshot.events)


def refusal(cluster: Object) -> str:
    """Return what the operator could not do, "" if nothing."""
    found = pods.condition(cluster, "ReplicaFailure")
    return str(found.get("message") or found.get("reason") or "") if found.get("status") == "True" else ""


def _not_made(cluster: Object, snapshot: Snapshot) -> Iterator[Diagnosis]:
    """Return why the operator has not got as far as pods."""
    current = _current(cluster, snapshot.events)
    warning = next((event for event in reversed(current) if event.get("type") == events.WARNING), None)
    invalid = warning is not None and events.reason(warning) in _INVALID
    if warning is not None and invalid and replicas.is_behind(cluster):
        yield _invalid(events.message(warning))
    if refusal(cluster):
        return
    if warning is not None and not invalid and snapshot.head is None:
        yield explain_admission(events.message(warning), what="what the cluster needs")
    missing = replicas.missing(cluster, snapshot.pods)
    if not replicas.is_observed(cluster):
        yield _unwatched(cluster)
    elif missing:
        yield _silent(f"the KubeRay operator makes no pod for {replicas.named(missing)}", _RUNS)


def _current(cluster: Object, every: Sequence[Object]) -> Sequence[Object]:
    """Return the events about the cluster as it is now: since it was last changed, `cluster.up` begins with that."""
    fields = cluster["metadata"].get("managedFields") or ()
    times = [pods.seconds(field.get("time")) for field in fields if field.get("subresource") != "status"]
    changed = max(times, default=pods.seconds(cluster["metadata"].get("creationTimestamp")))
    return [event for event in events.of(every, pods.uid(cluster)) if events.when(event) >= changed]


def _invalid(raw: str) -> Diagnosis:
    return Diagnosis(
        f"KubeRay does not take the cluster: {raw.rpartition(': ')[2] or raw}",
        "Is the operator older than what the cluster file asks for? Its image: kubectl get deployments -A -o wide",
        summary="KubeRay does not take the cluster",
        raw=raw,
        tolerates=SOON,
    )


def _unwatched(cluster: Object) -> Diagnosis:
    if cluster.get("status"):
        return _silent("the KubeRay operator does not answer: it has not looked at a change", _RUNS)
    namespace = cluster["metadata"].get("namespace")
    return _silent(
        f"no KubeRay operator watches the namespace {namespace}, so that nothing makes the cluster",
        "Does one run, and does it watch this namespace (watchNamespace in its chart's values)? "
        "kubectl get deployments -A -l app.kubernetes.io/name=kuberay-operator",
    )


def _silent(message: str, hint: str) -> Diagnosis:
    summary = "waits for the KubeRay operator"
    return Diagnosis(message, hint, summary=summary, key=KEY, error=PrerequisiteError, tolerates=MINUTE)


def _again_and_again(cluster: Object, every: Sequence[Object]) -> Iterator[Diagnosis]:
    """Return why pods fail and are replaced; the first end may be chance."""
    for reason, who in _DELETED.items():
        deaths = [
            events.message(event)
            for event in _current(cluster, every)
            if events.reason(event) == reason and "Pod status: Failed" in events.message(event)
        ]
        if len(deaths) >= TRIES:
            again = f"{wording.counted(len(deaths), 'time')}, and KubeRay makes it anew"
            found = explain(deaths[-1], DEATHS, who=who, again=again)
            if found:
                # The end of its log says it all; the event repeats it in Go's words.
                yield replace(found, raw="" if "{" in deaths[-1] else found.raw)
