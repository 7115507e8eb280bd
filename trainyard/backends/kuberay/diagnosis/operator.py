"""Why the KubeRay operator, or the API server, does not make what a RayCluster asks for; pure.

What it writes: ray-operator/controllers/ray/raycluster_controller.go (calculateStatus, reconcilePods), KubeRay 1.5.1.
What the API server refuses (kubernetes/plugin/pkg/admission) stands in the condition ReplicaFailure, and in events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from trainyard.backends import wording
from trainyard.backends.kuberay import pods, replicas
from trainyard.backends.kuberay.debounce import MINUTE, SOON
from trainyard.backends.kuberay.diagnosis.container import MORE_MEMORY, RAY_IN_IMAGE, TRIES, log_tail
from trainyard.backends.kuberay.pods import Object
from trainyard.backends.kuberay.snapshot import Snapshot
from trainyard.diagnosis import Diagnosis, Rule, explain
from trainyard.errors import PrerequisiteError

_BEGINNING = re.compile(r'^.*?pods? "[^"]*" is forbidden: |^.*?error creating: ', re.DOTALL)
KEY = "operator"
_RUNS = "Does it run? kubectl get pods -A -l app.kubernetes.io/name=kuberay-operator"
_REFUSED = {"FailedCreateHeadPod": "the head", "FailedCreateWorkerPod": "a worker"}
_DELETED = {"DeletedHeadPod": "head", "DeletedWorkerPod": "a worker"}
_INVALID = ("InvalidRayClusterSpec", "InvalidRayClusterMetadata", "InvalidRayClusterStatus")


def _amounts(match: re.Match[str]) -> Mapping[str, str]:
    """Return `requests.cpu: 2 wanted, 3 of 4 used`, for each resource that the message names."""
    tables = [
        dict(pair.split("=", 1) for pair in match[part].split(",") if "=" in pair)
        for part in ("requested", "used", "limited")
    ]
    amounts = (
        f"{name}: {amount} wanted, {tables[1].get(name, '?')} of {tables[2].get(name, '?')} used"
        for name, amount in tables[0].items()
    )
    return {"amounts": "; ".join(amounts)}


_rule = partial(Rule, error=PrerequisiteError)
RULES = (
    _rule(
        r"exceeded quota: (?P<name>\S+), requested: (?P<requested>\S+), used: (?P<used>\S+), limited: (?P<limited>\S+)",
        "the namespace's quota {name} has no room for it: {amounts}",
        "Ask for less in the cluster file, or have the quota raised: kubectl describe quota",
        words=_amounts,
    ),
    _rule(
        r"failed quota: (?P<name>\S+): must specify (?P<must>[^;]+)",
        "the namespace's quota {name} wants every pod to say {must}",
        "A LimitRange with defaults does that, or `kuberay.requests` in the cluster file.",
    ),
    _rule(
        r"(?P<rule>(?:maximum|minimum|max|min) \S+ (?:usage|limit|request)[^,]*(?:, but .*?)?(?=\]|$))",
        "a LimitRange of the namespace stands against it: {rule}",
        "Ask for what it allows (kubectl describe limitrange), or have it changed.",
    ),
    _rule(
        r"violates PodSecurity \"(?P<level>[^:\"]+)[^\"]*\": (?P<rules>.*)",
        "the namespace's Pod Security Standard {level} stands against it: {rules}",
        "`kuberay: {security: {restricted: true, run_as_user: 1000}}` keeps to it, if the image can run without root.",
    ),
    _rule(
        r"error looking up service account \S+: serviceaccount \"(?P<name>[^\"]+)\" not found",
        "there is no service account {name}",
        "Make it, or correct `kuberay.service_account` in the cluster file.",
    ),
    _rule(
        r"no PriorityClass with name (?P<name>\S+) was found",
        "there is no priority class {name}",
        "Make it, or correct `kuberay.priority_class` in the cluster file: kubectl get priorityclasses",
    ),
    _rule(
        r"RuntimeClass \"(?P<name>[^\"]+)\" not found",
        "there is no runtime class {name}",
        "Make it, or correct `kuberay.runtime_class` in the cluster file: kubectl get runtimeclasses",
    ),
    _rule(
        r"failed calling webhook \"(?P<name>[^\"]+)\"",
        "Kubernetes must ask {name} about every pod, and that does not answer",
        "It has to be started again, or its webhook removed, by who runs this Kubernetes.",
    ),
    _rule(
        r"admission webhook \"(?P<name>[^\"]+)\" denied the request: (?P<reason>.*)",
        "the rule {name} of this Kubernetes says: {reason}",
        "Who runs this Kubernetes knows how to keep to it.",
    ),
    _rule(
        r"because it is being terminated",
        "its namespace is being removed",
        "Wait until it is gone (kubectl get namespace), then repeat the command.",
    ),
    _rule(
        r"cannot (?P<verb>\w+) resource \"(?P<kind>[^\"]+)\"",
        "the operator may not {verb} {kind}",
        "Its role lacks that: repair it with Helm (helm upgrade), or ask who installed it.",
    ),
)


def explain_admission(text: str, *, what: str = "a pod") -> Diagnosis:
    plain = " ".join(_BEGINNING.sub("", text).split())
    found = explain(plain, RULES)
    if found is None:
        return Diagnosis(f"{what} could not be made: {plain}", summary=plain, tolerates=SOON)
    return replace(found, message=f"{what} may not be made: {found.message}", tolerates=SOON)


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
    found = pods.condition(cluster, "ReplicaFailure")
    return str(found.get("message") or found.get("reason") or "") if found.get("status") == "True" else ""


def _not_made(cluster: Object, snapshot: Snapshot) -> Iterator[Diagnosis]:
    """Return why the operator has not got as far as pods."""
    current = _current(cluster, snapshot.events)
    warning = next((event for event in reversed(current) if event.get("type") == pods.WARNING), None)
    invalid = warning is not None and pods.reason(warning) in _INVALID
    if warning is not None and invalid and replicas.is_behind(cluster):
        yield _invalid(pods.message(warning))
    if refusal(cluster):
        return
    if warning is not None and not invalid and snapshot.head is None:
        yield explain_admission(pods.message(warning), what="what the cluster needs")
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
    return [event for event in pods.of(every, pods.uid(cluster)) if pods.when(event) >= changed]


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
            pods.message(event)
            for event in _current(cluster, every)
            if pods.reason(event) == reason and "Pod status: Failed" in pods.message(event)
        ]
        if len(deaths) >= TRIES:
            again = f"{wording.counted(len(deaths), 'time')}, and KubeRay makes it anew"
            found = explain(deaths[-1], DEATHS, who=who, again=again)
            if found:
                # The end of its log says it all; the event repeats it in Go's words.
                yield replace(found, raw="" if "{" in deaths[-1] else found.raw)
