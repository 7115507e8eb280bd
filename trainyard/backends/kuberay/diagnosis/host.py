"""Why a host does not run what it was given: it is not ready, says Kubernetes, or it refused or ended the pod; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trainyard.backends.kuberay import pods
from trainyard.backends.kuberay.debounce import MINUTE, SOON
from trainyard.backends.kuberay.pods import Object
from trainyard.diagnosis import Diagnosis, Rule, explain

# A host that is not ready, says Kubernetes; Ray may know better.
NOT_READY = "host"
# What became of a pod, by the reason in its status.
RULES = (
    Rule(
        r"^Evicted$",
        "was evicted from the Kubernetes node {host}, which ran out of something",
        "Make room there, or ask for less in the cluster file.",
        tolerates=SOON,
    ),
    Rule(
        r"^(?P<reason>OutOf.*|UnexpectedAdmissionError|NodeAffinity|TopologyAffinityError)$",
        "was given to the Kubernetes node {host}, which does not take it ({reason})",
        "What it has: kubectl describe node {host}",
        tolerates=SOON,
    ),
    Rule(
        r"(?P<reason>.+)",
        "was ended by the Kubernetes node {host} ({reason})",
        "What happened there: kubectl describe node {host}",
        tolerates=SOON,
    ),
)


def explain_host(pod: Object, hosts: Mapping[str, Object | None]) -> Diagnosis | None:
    """Return that a pod's host is gone or not ready, None if it is, or that cannot be known.

    Who may not see hosts sees it by the pod: Kubernetes calls that unready while its kubelet calls its containers ready
    (kubernetes/pkg/controller/util/node, MarkPodsNotReady).
    """
    name = pods.host(pod)
    host = hosts.get(name)
    if name and name in hosts and host is None:
        return _not_ready(name, f'nodes "{name}" not found', gone=True)
    if host is not None:
        ready = pods.condition(host, "Ready")
        return None if ready.get("status") == "True" else _not_ready(name, str(ready.get("message") or ""))
    is_ready = pods.condition(pod, "Ready").get("status") != "False"
    return None if is_ready or pods.condition(pod, "ContainersReady").get("status") != "True" else _not_ready(name, "")


def explain_end(pod: Object) -> Diagnosis | None:
    """Return why a host ended a pod, or did not take it, None if it did neither; KubeRay replaces it, most often."""
    status = pod.get("status") or {}
    if pods.phase(pod) != "Failed":
        return None
    found = explain(str(status.get("reason") or ""), RULES, host=pods.host(pod))
    return replace(found, raw=str(status.get("message") or "")) if found else None


def _not_ready(name: str, raw: str, *, gone: bool = False) -> Diagnosis:
    state = "is gone" if gone else "Kubernetes calls not ready"
    return Diagnosis(
        f"is on the Kubernetes node {name}, which {state}",
        f"More about it: kubectl describe node {name}. Start that machine or its kubelet again; or give it up "
        f"(kubectl delete node {name}), and its Ray nodes are made anew elsewhere.",
        summary=f"its Kubernetes node {name} is gone" if gone else f"Kubernetes calls its node {name} not ready",
        key=NOT_READY,
        raw=raw,
        tolerates=SOON if gone else MINUTE,
    )
