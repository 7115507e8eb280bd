"""Why a Kubernetes node does not run what it was given: it is lost, ran out of something, or lacks what a pod needs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes import event
from trainyard.backends.kuberay.causes.facts import Cause, Host
from trainyard.backends.kuberay.pod import Pod
from trainyard.errors import OutsideError, PrerequisiteError

# A kubelet that is started again reports within seconds.
LOST_SECONDS = 10.0
# A control plane that was away takes nodes for lost that are not, and takes that back within a minute.
DOUBTED_SECONDS = 60.0
DOUBTED = "doubted host"
# What Kubernetes tells the pods of a node that it takes for lost, as it calls them unready
# (kubernetes/pkg/controller/util/node, MarkPodsNotReady); SAME: so many seconds apart is at once.
NODE_NOT_READY = "NodeNotReady"
SAME = 5.0
# A kubelet renews its lease every 10 s (kubernetes/pkg/kubelet, nodeLeaseRenewIntervalFraction of 40 s).
RENEWED_SECONDS = 15.0
# KubeRay replaces a pod that failed; only one that stays is a cause.
FAILED_SECONDS = 3.0
# The kubelet tries again by itself, and its first try may come before what it needs.
PREPARING_SECONDS = 5.0
MOUNTS = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
SANDBOX = "FailedCreatePodSandBox"
_WENT_ON = ("Pulling", "Pulled", "Created", "Started", "SuccessfulAttachVolume")

_PASSES = re.compile(r"failed to sync (?:secret|configmap) cache|not registered")
_MISSING = re.compile(r'(?P<kind>secret|configmap) "(?P<name>[^"]+)" not found', re.IGNORECASE)
_NO_RUNTIME = re.compile(r'no runtime for "(?P<name>[^"]+)" is configured')
_HOST_PATH = re.compile(r"hostPath type check failed: (?P<path>\S+) is not (?P<kind>.+)")


def lost(pod: Pod, nodes: Mapping[str, Host | None], events: Sequence[event.Event]) -> Cause | None:
    """Return that a pod's Kubernetes node does not answer, None if it does, or nobody says.

    Who may not see nodes still sees what became of the pod: `events` are its.
    """
    name = pods.host(pod)
    if not name:
        return None
    host = nodes.get(name)
    if host is not None:
        return _unready(name, host)
    if name in nodes:
        return _lost(name, f'nodes "{name}" not found')
    status = pod.get("status") or {}
    if status.get("reason") == "NodeLost":
        return _lost(name, str(status.get("message") or ""))
    said = event.newest(events, NODE_NOT_READY)
    if said is None or event.when(said) < pods.seconds(pods.condition(pod, "Ready").get("lastTransitionTime")) - SAME:
        return None
    return _doubted(name, "for lost", event.message(said))


def doubted(causes: Sequence[Cause]) -> Sequence[Cause]:
    """Return the causes, all with more patience while Kubernetes takes a host for lost that is not.

    A pod that found no room then did not look for it on that host.
    """
    if not any(one.about == DOUBTED for one in causes):
        return causes
    return [replace(one, patience=max(one.patience, DOUBTED_SECONDS)) for one in causes]


def _unready(name: str, host: Host) -> Cause | None:
    ready = pods.condition(host.node, "Ready")
    said = str(ready.get("message") or "")
    if ready.get("status") == "True":
        return None
    if ready.get("status") == "False":
        return Cause(
            what=f"is on the Kubernetes node {name}, which is not ready",
            brief=f"its Kubernetes node {name} is not ready",
            hint=f"More about it: kubectl describe node {name}",
            said=said,
            patience=LOST_SECONDS,
        )
    if host.lease is None:
        return _lost(name, said, patience=DOUBTED_SECONDS)
    renewed = pods.seconds((host.lease.get("spec") or {}).get("renewTime"))
    if renewed < pods.seconds(ready.get("lastTransitionTime")) - RENEWED_SECONDS:
        return _lost(name, said)
    return _doubted(name, "for lost, though its kubelet reports", said)


def _doubted(name: str, how: str, said: str) -> Cause:
    return Cause(
        what=f"is on the Kubernetes node {name}, which Kubernetes takes {how}",
        brief=f"Kubernetes takes its node {name} {how}",
        about=DOUBTED,
        hint="After an outage of its own it thinks again within a minute. Whoever may see nodes sees more: "
        f"kubectl describe node {name}",
        said=said,
        patience=DOUBTED_SECONDS,
    )


def _lost(name: str, said: str, *, patience: float = LOST_SECONDS) -> Cause:
    return Cause(
        what=f"ran on the Kubernetes node {name}, which does not answer any more",
        brief=f"its Kubernetes node {name} does not answer",
        hint=f"Start that machine or its kubelet again; or give it up (kubectl delete node {name}), "
        "and its Ray nodes are made anew elsewhere.",
        said=said,
        patience=patience,
    )


def gave_up(pod: Pod) -> Cause | None:
    """Return why a Kubernetes node ended a pod, or did not take it, None if it did neither."""
    status = pod.get("status") or {}
    reason, said = str(status.get("reason") or ""), str(status.get("message") or "")
    if pods.phase(pod) != "Failed" or not reason:
        return None
    host = pods.host(pod)
    if reason == "Evicted":
        what = f"was evicted from the Kubernetes node {host}, which ran out of something"
        hint = "Make room there, or ask for less in the cluster file."
    elif reason.startswith("OutOf") or reason in ("UnexpectedAdmissionError", "NodeAffinity", "TopologyAffinityError"):
        what = f"was given to the Kubernetes node {host}, which does not take it ({reason})"
        hint = f"What it has: kubectl describe node {host}"
    else:
        what = f"was ended by the Kubernetes node {host} ({reason})"
        hint = f"What happened there: kubectl describe node {host}"
    return Cause(what=what, brief=what, hint=hint, said=said, patience=FAILED_SECONDS)


def unprepared(pod: Pod, events: Sequence[event.Event]) -> Cause | None:
    """Return what the kubelet lacks to start a pod's first container, None if it lacks nothing (yet)."""
    if any(one.running_since or one.ended or one.last for one in pods.containers(pod)):
        return None
    problem = event.newest(events, *MOUNTS, SANDBOX)
    if problem is None or _PASSES.search(event.message(problem)) or not event.stands(events, problem, until=_WENT_ON):
        return None
    said = event.message(problem)
    what, hint, lacks = _sandbox(said, pods.host(pod)) if event.reason(problem) == SANDBOX else _mount(said)
    return Cause(
        what=f"cannot start: {what}",
        brief=what,
        hint=hint,
        said=said,
        patience=PREPARING_SECONDS,
        kind=PrerequisiteError if lacks else OutsideError,
    )


def _mount(said: str) -> tuple[str, str | None, bool]:
    if found := _MISSING.search(said):
        kind = {"secret": "Secret", "configmap": "ConfigMap"}[found["kind"].lower()]
        return (
            f"there is no {kind} {found['name']} to be mounted",
            "Make it, or correct `kuberay.volumes` in the cluster file.",
            True,
        )
    if found := _HOST_PATH.search(said):
        return (
            f"{found['path']} of the Kubernetes node is not {found['kind']}",
            "Make it on every node, or correct `kuberay.volumes` in the cluster file.",
            True,
        )
    return "a volume cannot be mounted", "Is the storage there, and may this node have it? kubectl describe pvc", False


def _sandbox(said: str, host: str) -> tuple[str, str | None, bool]:
    if found := _NO_RUNTIME.search(said):
        return (
            f"containerd of the Kubernetes node {host} has no runtime {found['name']}",
            "Install the NVIDIA container toolkit there (or whatever that runtime is), or correct "
            "`kuberay.runtime_class` in the cluster file.",
            True,
        )
    return (
        f"the Kubernetes node {host} cannot prepare its network",
        "Does its CNI plugin run? kubectl get pods -A",
        False,
    )
