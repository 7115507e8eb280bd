"""Why no host takes a pod, or why Kubernetes calls its host not ready; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from trainyard.backends.kuberay import pods
from trainyard.backends.kuberay.debounce import MINUTE, SOON
from trainyard.diagnosis import Diagnosis, Rule, explain
from trainyard.errors import PrerequisiteError
from trainyard.seams.kube.types import Object


class NoRoomError(PrerequisiteError):
    """The scheduler found no host for a pod."""


# The key of a host that Kubernetes calls not ready; Ray may know better.
NOT_READY = "host"
_ROOM = "found no room{requests}: {hosts}"
# The scheduler's texts (kubernetes/pkg/scheduler/framework/plugins), and their hints; the first
# match counts.
RULES = (
    Rule(
        r'persistentvolumeclaim "(?P<claim>[^"]+)" not found',
        "cannot start: there is no claim {claim}",
        "Make it, or correct `kuberay.storage.claim` or `kuberay.volumes` in the cluster file.",
        tolerates=SOON,
    ),
    Rule(
        r"unbound immediate PersistentVolumeClaims",
        "cannot start: no volume was found for its claim yet",
        "Why not: kubectl describe pvc. It needs a storage class that makes volumes, or a volume "
        "that fits (kuberay.storage: size, storage_class, access).",
        tolerates=MINUTE,
    ),
    Rule(
        r"Insufficient \S*gpu",
        _ROOM,
        "Does NVIDIA's device plugin run (MicroK8s: microk8s enable gpu)? Or ask for fewer; to "
        "try the layout without GPUs: `kuberay: {simulated_gpus: true}`.",
    ),
    Rule(
        r"Insufficient |Too many pods",
        _ROOM,
        "Ask for less in the cluster file, or add a machine (kuberay.wait_for_machines, if one "
        "comes by itself).",
    ),
    Rule(
        r"didn't match Pod's node affinity",
        _ROOM,
        "Correct kuberay.node_selector, or label a machine: kubectl label node NAME KEY=VALUE",
    ),
    Rule(
        r"didn't match pod anti-affinity",
        _ROOM,
        "There are fewer machines than nodes: `kuberay: {spread: preferred}`, or fewer nodes.",
    ),
    Rule(
        r"untolerated taint(?! \{node\.kubernetes\.io)",
        _ROOM,
        "Tolerate the taint (kuberay.tolerations) if the cluster may use those machines.",
    ),
    Rule("", _ROOM, "What each machine has: kubectl describe nodes"),
)
# The scheduler's remarks on preemption, which follow its reasons.
_PREEMPTION = re.compile(r"\.? (?:no new claims to deallocate,? ?|preemption: )")


def explain_host(pod: Object, hosts: Mapping[str, Object | None]) -> Diagnosis | None:
    """Return that a pod's host is gone or not ready; None if it is ready, or that is unknown.

    A user who may not read hosts sees it by the pod: Kubernetes calls the pod unready while its
    kubelet calls its containers ready (kubernetes/pkg/controller/util/node, MarkPodsNotReady).
    """
    name = pods.host(pod)
    if name not in hosts:
        ready = pods.condition(pod, "Ready")
        if ready.get("status") != "False" or not pods.is_true(pod, "ContainersReady"):
            return None
    elif host := hosts[name]:
        ready = pods.condition(host, "Ready")
    else:
        ready = {"message": f'nodes "{name}" not found'}

    if ready.get("status") == "True":
        return None

    return Diagnosis(
        f"is on the Kubernetes node {name}, which Kubernetes calls not ready",
        f"More about it: kubectl describe node {name}. Start that machine or its kubelet again; or "
        f"give it up (kubectl delete node {name}), and its Ray nodes are replaced elsewhere.",
        summary=f"Kubernetes calls its node {name} not ready",
        key=NOT_READY,
        raw=str(ready.get("message") or ""),
        tolerates=MINUTE,
    )


def explain_scheduling(pod: Object, *, wait: float = 0.0) -> Diagnosis | None:
    """Return why no host has room for a pod, None if the scheduler has not refused it.

    `wait` is how long that may last, in seconds, where machines are added by themselves.
    """
    scheduled = pods.condition(pod, "PodScheduled")
    if scheduled.get("status") != "False" or scheduled.get("reason") != "Unschedulable":
        return None
    hosts = _PREEMPTION.split(str(scheduled.get("message") or ""))[0]
    cause = explain(hosts, RULES, hosts=hosts, requests=_requested(pod))
    # Machines that come by themselves bring no claims.
    return cause and replace(
        cause, error=NoRoomError, key="room", raw="", tolerates=cause.tolerates or max(SOON, wait)
    )


def _requested(pod: Object) -> str:
    """Return what a pod asks the scheduler for: ` for 2 cpu, 4Gi memory, 1 nvidia.com/gpu`."""
    resources = pod["spec"]["containers"][0].get("resources") or {}
    amounts = resources.get("requests") or resources.get("limits") or {}
    if not amounts:
        return ""
    listed = [f"{amount} {resource}" for resource, amount in amounts.items()]
    return f" for {', '.join(listed)}"
