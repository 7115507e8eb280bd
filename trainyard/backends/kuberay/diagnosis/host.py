"""Why the scheduler finds no host for a pod, or the host is unready; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from trainyard.backends.kuberay import pods
from trainyard.backends.kuberay.debounce import MINUTE, SOON
from trainyard.diagnosis import Diagnosis, Rule, explain
from trainyard.errors import PrerequisiteError
from trainyard.seams.kube.types import Object


class NoHostError(PrerequisiteError):
    """The scheduler found no host for a pod."""


# The key for a host that is not ready. Callers ignore the diagnosis if Ray calls the node alive.
NOT_READY = "host"
_ROOM = "found no room{requests}: {hosts}"
# Rules for the scheduler's texts (kubernetes/pkg/scheduler/framework/plugins); the first match
# counts.
RULES = (
    Rule(
        r'persistentvolumeclaim "(?P<claim>[^"]+)" not found',
        "cannot start: there is no claim {claim}",
        "Make the claim, or correct `kuberay.storage.claim` or `kuberay.volumes` in the cluster "
        "file.",
        tolerates=SOON,
    ),
    Rule(
        r"unbound immediate PersistentVolumeClaims",
        "cannot start: no volume was found for its claim yet",
        "The reason: kubectl describe pvc. The claim needs a storage class that makes volumes, or "
        "a volume "
        "that fits (kuberay.storage: size, storage_class, access).",
        tolerates=MINUTE,
    ),
    Rule(
        r"Insufficient \S*gpu",
        _ROOM,
        "Does NVIDIA's device plugin run (MicroK8s: microk8s enable gpu)? Or ask for fewer GPUs. "
        "To try the layout without GPUs: `kuberay: {simulated_gpus: true}`.",
    ),
    Rule(
        r"Insufficient |Too many pods",
        _ROOM,
        "Ask for less in the cluster file, or add a machine (kuberay.wait_for_machines, if "
        "machines are added automatically).",
    ),
    Rule(
        "",
        _ROOM,
        "Compare kuberay.node_selector, tolerations and spread in the cluster file with the "
        "machines: kubectl describe nodes",
    ),
)
# The scheduler appends remarks on preemption to its reasons.
_PREEMPTION = re.compile(r"\.? (?:no new claims to deallocate,? ?|preemption: )")


def explain_host(pod: Object, hosts: Mapping[str, Object | None]) -> Diagnosis | None:
    """Return a diagnosis if a pod's host is gone or not ready.

    If the user may not read hosts, `hosts` lacks the host. The host then counts
    as not ready if the pod's condition Ready is False while ContainersReady is
    True (kubernetes/pkg/controller/util/node, MarkPodsNotReady).
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
        f"Details: kubectl describe node {name}. Start that machine or its kubelet again. Or "
        f"remove it (kubectl delete node {name}), and its Ray nodes are replaced elsewhere.",
        summary=f"Kubernetes calls its node {name} not ready",
        key=NOT_READY,
        raw=str(ready.get("message") or ""),
        tolerates=MINUTE,
    )


def explain_scheduling(pod: Object, *, wait: float = 0.0) -> Diagnosis | None:
    """Return why the scheduler found no host; None unless it tried and failed.

    A pod may wait `wait` seconds for a machine that is added automatically.
    """
    scheduled = pods.condition(pod, "PodScheduled")
    if scheduled.get("status") != "False" or scheduled.get("reason") != "Unschedulable":
        return None
    hosts = _PREEMPTION.split(str(scheduled.get("message") or ""))[0]
    cause = explain(hosts, RULES, hosts=hosts, requests=_requested(pod))
    # Rules about claims keep their tolerance: a new machine does not provide a claim.
    return cause and replace(
        cause, error=NoHostError, key="room", raw="", tolerates=cause.tolerates or max(SOON, wait)
    )


def _requested(pod: Object) -> str:
    """Describe requests: ` for 2 cpu, 4Gi memory, 1 nvidia.com/gpu`, or ""."""
    resources = pod["spec"]["containers"][0].get("resources") or {}
    amounts = resources.get("requests") or resources.get("limits") or {}
    if not amounts:
        return ""
    listed = [f"{amount} {resource}" for resource, amount in amounts.items()]
    return f" for {', '.join(listed)}"
