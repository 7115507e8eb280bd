"""Why no host takes a pod, or its host does not run it: it is not ready, says Kubernetes, refused or ended it; pure.

The scheduler's texts are those of kubernetes/pkg/scheduler/framework/plugins and types.go (FitError), seen with 1.34.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from trainyard.backends import wording
from trainyard.backends.kuberay import pods
from trainyard.backends.kuberay.debounce import MINUTE, SOON
from trainyard.backends.kuberay.pods import Object
from trainyard.diagnosis import Diagnosis, Rule, explain
from trainyard.errors import PrerequisiteError
from trainyard.spec.units import SIZES

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
KEY = "room"
_RESOURCES = {"cpu": "CPUs", "memory": "memory", "ephemeral-storage": "disk space", "pods": "room for another pod"}
_TOLERATE = "Tolerate the taint (kuberay.tolerations) if the cluster may use those machines."
_SELECT = "Correct kuberay.node_selector, or label a machine: kubectl label node NAME KEY=VALUE"
_DESCRIBE = "What each machine has: kubectl describe nodes"


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


def _resource(match: re.Match[str]) -> Mapping[str, str]:
    return {"resource": _RESOURCES.get(match["name"], match["name"])}


# What keeps a pod off every host, whatever they have.
STORAGE = (
    Rule(
        r'persistentvolumeclaim "(?P<claim>[^"]+)" not found',
        "cannot start: there is no claim {claim}",
        "Make it, or correct `kuberay.storage.claim` or `kuberay.volumes` in the cluster file.",
    ),
    Rule(
        r"unbound immediate PersistentVolumeClaims",
        "cannot start: no volume was found for its claim yet",
        "Why not: kubectl describe pvc. It needs a storage class that makes volumes, or a volume that fits "
        "(kuberay.storage: size, storage_class, access).",
    ),
)
# What a host lacks, after "3 "; the hint of the first rule that fits any host is shown.
HOSTS = (
    Rule(
        r"^Insufficient (?P<name>\S+)$",
        "short of {resource}",
        "Ask for less in the cluster file, or add a machine (kuberay.wait_for_machines, if one comes by itself).",
        words=_resource,
    ),
    Rule(r"untolerated taint \{node\.kubernetes\.io/(?:not-ready|unreachable)", "not ready", _DESCRIBE),
    Rule(r"untolerated taint \{node\.kubernetes\.io/(?P<what>\S+?)-pressure", "under {what} pressure", _DESCRIBE),
    Rule(r"untolerated taint \{(?P<taint>[^}]+?)(?:: ?)?\}", "tainted {taint}", _TOLERATE),
    Rule(r"untolerated taint\(s\)", "tainted", _TOLERATE),
    Rule(r"didn't match Pod's node affinity", "without the labels that `node_selector` asks for", _SELECT),
    Rule(
        r"didn't match pod anti-affinity",
        "taken by another node of this cluster (`spread: required`)",
        "There are fewer machines than nodes: `kuberay: {spread: preferred}`, or fewer nodes.",
    ),
    Rule(r"were unschedulable", "cordoned", "Let pods onto a machine again: kubectl uncordon NAME"),
    Rule(r"^Too many pods", "full: no room for another pod", _DESCRIBE),
    Rule(r"volume node affinity conflict", "not where the volume is", _DESCRIBE),
    Rule(r"available persistent volumes to bind", "without a volume for the claim", _DESCRIBE),
    Rule(r"exceed max volume count", "full: no room for another volume", _DESCRIBE),
)
# What the scheduler thought about making room.
_PREEMPTION = re.compile(r"\.? (?:no new claims to deallocate,? ?|preemption: )")
_TOTAL = re.compile(r"^0/(\d+) nodes are available: ")


def explain_scheduling(pod: Object, *, wait: float = 0.0) -> Diagnosis | None:
    """Return why no host has room for a pod, None if the scheduler has not refused it.

    `wait` is how long that may last, in seconds, where machines are added by themselves.
    """
    scheduled = pods.condition(pod, "PodScheduled")
    if scheduled.get("status") != "False" or scheduled.get("reason") != "Unschedulable":
        return None
    raw = _PREEMPTION.split(str(scheduled.get("message") or ""))[0]
    found = explain(raw, STORAGE)
    message, hint = (found.message, found.hint) if found else _no_room(raw, requested(pod))
    return Diagnosis(
        message, hint, summary=message, key=KEY, error=PrerequisiteError, raw=raw, tolerates=max(SOON, wait)
    )


def requested(pod: Object) -> str:
    """Return what a pod asks for: `2 CPUs, 4GiB of memory and 1 nvidia.com/gpu`."""
    amounts = {resource: pods.quantity(amount) for resource, amount in pods.requests(pod).items()}
    ordered = sorted(amounts, key=lambda resource: (resource not in _RESOURCES, resource))
    parts = [_amount(resource, amounts[resource]) for resource in ordered if amounts[resource]]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _no_room(raw: str, requests: str) -> tuple[str, str | None]:
    begin = f"found no room for {requests}" if requests else "found no room"
    total = _TOTAL.match(raw)
    if total is None:
        return f"{begin}: {raw or 'the scheduler does not say why'}", _DESCRIBE
    entries = re.split(r", (?=\d+ |pod has)", raw[total.end() :].rstrip(". "))
    hints = [rule.hint for rule in HOSTS if any(explain(_reason(entry), [rule]) for entry in entries)]
    hosts = ", ".join(map(_entry, entries))
    return f"{begin}; of {wording.counted(int(total[1]), 'node')} {hosts}", next(iter(hints), _DESCRIBE)


def _entry(text: str) -> str:
    """Return what is wrong with some hosts, in our words if we have them: `2 are short of CPUs`."""
    count, _, reason = text.partition(" ")
    found = explain(_reason(text), HOSTS)
    if found is None:
        return f"{count}: {reason.rstrip('.')}" if count.isdigit() else text
    return f"{count} {'is' if count == '1' else 'are'} {found.message}"


def _reason(entry: str) -> str:
    return entry.partition(" ")[2].rstrip(".")


def _amount(resource: str, number: float) -> str:
    if resource == "cpu":
        return "1 CPU" if number == 1 else f"{number:g} CPUs"
    if resource in ("memory", "ephemeral-storage"):
        unit = next((unit for unit in ("GiB", "MiB") if number >= SIZES[unit]), None)
        size = f"{number / SIZES[unit]:.4g}{unit}" if unit else f"{number:.0f} bytes"
        return f"{size} of {_RESOURCES[resource]}"
    return f"{number:g} {resource}"
