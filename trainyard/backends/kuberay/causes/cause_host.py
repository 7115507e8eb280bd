"""Why a Kubernetes node does not run what it was given: it ran out of something, or lacks what a pod needs; pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes import event
from trainyard.backends.kuberay.causes.facts import Cause
from trainyard.backends.kuberay.pod import Pod
from trainyard.errors import OutsideError, PrerequisiteError

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
