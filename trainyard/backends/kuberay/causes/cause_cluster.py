"""Why the KubeRay operator does not make what a RayCluster asks for; pure.

What it writes: ray-operator/controllers/ray/raycluster_controller.go (calculateStatus, reconcilePods), KubeRay 1.5.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard.backends import wording
from trainyard.backends.kuberay import counts
from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes import cause_container, cause_refused, event
from trainyard.backends.kuberay.causes.facts import Cause, Facts
from trainyard.errors import OutsideError, PrerequisiteError

RayCluster = Mapping[str, Any]
# It writes its status within a second; one that is only just started needs some more.
OPERATOR_SECONDS = 20.0
OPERATOR = "operator"
# A condition stays until the operator tries again, which `cluster.up` makes it do (ready.py).
REFUSED_SECONDS = 4.0
# A pod that failed is replaced at once; the first end may be chance.
TRIES = 2
_DELETED = {"DeletedHeadPod": "head", "DeletedWorkerPod": "a worker"}
_INVALID = ("InvalidRayClusterSpec", "InvalidRayClusterMetadata", "InvalidRayClusterStatus")
_ENDED = re.compile(
    r"Pod status: Failed;.*?ContainerStateTerminated\{ExitCode:(?P<code>\d+),Signal:\d+,Reason:(?P<reason>[^,]*),"
    r"Message:(?P<message>.*?),StartedAt:",
    re.DOTALL,
)


def causes(facts: Facts) -> Iterator[Cause]:
    """Return why the operator does not make the pods, the most certain one first."""
    cluster = facts.owner
    if cluster is None:
        return
    yield from _refused(cluster)
    yield from _unmade(cluster, facts)
    yield from _again_and_again(cluster, facts)


def failure(cluster: RayCluster) -> str:
    """Return what the operator could not do, "" if nothing."""
    found = pods.condition(cluster, "ReplicaFailure")
    return str(found.get("message") or found.get("reason") or "") if found.get("status") == "True" else ""


def _refused(cluster: RayCluster) -> Iterator[Cause]:
    said = failure(cluster)
    if said:
        reason = str(pods.condition(cluster, "ReplicaFailure").get("reason"))
        what = {"FailedCreateHeadPod": "the head", "FailedCreateWorkerPod": "a worker"}.get(reason, "a pod")
        yield cause_refused.cause(said.removeprefix(reason).strip(), what=what, patience=REFUSED_SECONDS)


def _unmade(cluster: RayCluster, facts: Facts) -> Iterator[Cause]:
    """Return why the operator has not got as far as pods."""
    warning = _warning(cluster, facts.events)
    invalid = warning is not None and event.reason(warning) in _INVALID
    if warning is not None and invalid and counts.is_behind(cluster):
        yield _invalid(event.message(warning))
    if failure(cluster):
        return
    if warning is not None and not invalid and facts.head is None:
        yield cause_refused.cause(event.message(warning), what="what the cluster needs", patience=REFUSED_SECONDS)
    missing = counts.missing(cluster, facts.pods)
    if not counts.is_observed(cluster):
        yield _unwatched(cluster)
    elif missing:
        yield _idle(cluster, missing)


def _warning(cluster: RayCluster, events: Sequence[event.Event]) -> event.Event | None:
    """Return the newest warning about the cluster as it is now, None if there is none."""
    changed = _changed(cluster)
    found = [
        one
        for one in event.of(events, str(cluster["metadata"]["uid"]))
        if one.get("type") == event.WARNING and event.when(one) >= changed
    ]
    return found[-1] if found else None


def _changed(cluster: RayCluster) -> float:
    """Return when what is asked for was last changed, in Unix seconds of the cluster."""
    fields = cluster["metadata"].get("managedFields") or ()
    times = [pods.seconds(one.get("time")) for one in fields if one.get("subresource") != "status"]
    return max(times, default=pods.seconds(cluster["metadata"].get("creationTimestamp")))


def _invalid(said: str) -> Cause:
    return Cause(
        what=f"KubeRay does not take the cluster: {said.rpartition(': ')[2] or said}",
        brief="KubeRay does not take the cluster",
        said=said,
        hint="Is the operator older than what the cluster file asks for? Its image: kubectl get deployments -A -o wide",
        patience=REFUSED_SECONDS,
    )


def _unwatched(cluster: RayCluster) -> Cause:
    namespace = cluster["metadata"].get("namespace")
    if cluster.get("status"):
        what = f"the KubeRay operator does not answer: it has not looked at a change for {OPERATOR_SECONDS:.0f} s"
        hint = "Does it run? kubectl get pods -A -l app.kubernetes.io/name=kuberay-operator"
    else:
        what = f"nobody makes the cluster: no KubeRay operator watches the namespace {namespace}"
        hint = (
            "Is one there, and does it watch this namespace (watchNamespace in its chart's values)? "
            "kubectl get deployments -A -l app.kubernetes.io/name=kuberay-operator"
        )
    return Cause(
        what=what,
        brief="waits for the KubeRay operator",
        about=OPERATOR,
        kind=PrerequisiteError,
        hint=hint,
        patience=OPERATOR_SECONDS,
    )


def _idle(cluster: RayCluster, missing: Mapping[str, int]) -> Cause:
    shown = [counts.nodes(group, count) for group, count in missing.items()]
    return Cause(
        what=f"the KubeRay operator makes no pod for {wording.named(shown)}",
        brief="waits for the KubeRay operator",
        about=OPERATOR,
        kind=PrerequisiteError,
        hint="Does it run? kubectl get pods -A -l app.kubernetes.io/name=kuberay-operator",
        patience=OPERATOR_SECONDS,
    )


def _again_and_again(cluster: RayCluster, facts: Facts) -> Iterator[Cause]:
    """Return why pods fail and are replaced: KubeRay removes one, log and all, before anybody can ask it."""
    ours = event.of(facts.fresh, str(cluster["metadata"]["uid"]))
    for reason, who in _DELETED.items():
        deaths = [one for one in ours if event.reason(one) == reason and "Pod status: Failed" in event.message(one)]
        if len(deaths) >= TRIES:
            yield _death(event.message(deaths[-1]), who, len(deaths))


def _death(said: str, who: str, count: int) -> Cause:
    ended = _ENDED.search(said)
    again = f"{wording.counted(count, 'time')}, and KubeRay makes it anew"
    if ended is None:
        return Cause(what=f"{who} failed {again}", brief=f"failed {again}", said=said)
    if ended["reason"] == cause_container.OUT_OF_MEMORY:
        return Cause(
            what=f"{who} was killed {again}: it used more than its memory",
            brief="out of memory",
            hint=cause_container.MORE_MEMORY,
        )
    message = ended["message"]
    return Cause(
        what=f"{who} ended while it was starting (exit code {ended['code']}), {again}; its last words:",
        brief=f"ended with exit code {ended['code']}",
        kind=OutsideError,
        hint=cause_container.RAY_IN_IMAGE,
        words=lambda: cause_container.last_lines(message),
    )
