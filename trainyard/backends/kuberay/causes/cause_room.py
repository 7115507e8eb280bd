"""Why the scheduler gives a pod to no Kubernetes node, in our words; pure.

The texts are those of kubernetes/pkg/scheduler/framework/plugins and types.go (FitError), seen with 1.34.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainyard.backends import wording
from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes.facts import Cause
from trainyard.errors import PrerequisiteError
from trainyard.spec.units import SIZES

# A pod may find room a moment later: one that ends makes some, a new node's resources are counted late.
UNSCHEDULABLE_SECONDS = 5.0
_RESOURCES = {"cpu": "CPUs", "memory": "memory", "ephemeral-storage": "disk space", "pods": "room for another pod"}
# What a node lacks, after "3 "; the first group is what goes into our words.
_REASONS: tuple[tuple[str, str], ...] = (
    (r"Insufficient (\S+)", "short of {}"),
    (r"Too many pods", "full: no room for another pod"),
    (r"node\(s\) had untolerated taint\(s\)", "tainted"),
    (r"node\(s\) had untolerated taint \{(node\.kubernetes\.io/(?:not-ready|unreachable))[^}]*\}", "not ready"),
    (r"node\(s\) had untolerated taint \{node\.kubernetes\.io/(\S+?)-pressure[^}]*\}", "under {} pressure"),
    (r"node\(s\) had untolerated taint \{([^:}]+)(?:: ?)\}", "tainted {}"),
    (r"node\(s\) had untolerated taint \{([^}]+)\}", "tainted {}"),
    (r"node\(s\) were unschedulable", "cordoned"),
    (r"node\(s\) didn't match Pod's node affinity/selector", "without the labels that `node_selector` asks for"),
    (r"node\(s\) didn't match pod anti-affinity rules", "taken by another node of this cluster (`spread: required`)"),
    (r"node\(s\) had volume node affinity conflict", "not where the volume is"),
    (r"node\(s\) didn't find available persistent volumes to bind", "without a volume for the claim"),
    (r"node\(s\) didn't have free ports[^,]*", "without the port that the pod wants"),
    (r"node\(s\) exceed max volume count", "full: no room for another volume"),
)
_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
_UNBOUND = re.compile(r"unbound immediate PersistentVolumeClaims")
# What the scheduler thought about making room.
_THOUGHTS = re.compile(r"\.? (?:no new claims to deallocate,? ?|preemption: )")
_TOTAL = re.compile(r"^0/(\d+) nodes are available: ")
_ENTRY = re.compile(r"^(\d+) (.+)$")


def cause(pod: Mapping[str, Any], *, wait: float = 0.0) -> Cause | None:
    """Return why no Kubernetes node has room for a pod, None if the scheduler has not refused it.

    `wait` is how long that may last, in seconds, where machines are added by themselves.
    """
    scheduled = pods.condition(pod, "PodScheduled")
    if scheduled.get("status") != "False" or scheduled.get("reason") != "Unschedulable":
        return None
    said = str(scheduled.get("message") or "")
    what, hint = _claims(said) or _nodes(said, pod)
    return Cause(
        what=what,
        brief=what,
        about="room",
        kind=PrerequisiteError,
        hint=hint,
        said=_THOUGHTS.split(said)[0],
        patience=max(UNSCHEDULABLE_SECONDS, wait),
    )


def asked(pod: Mapping[str, Any]) -> str:
    """Return what a pod asks for: `2 CPUs, 4GiB of memory and 1 nvidia.com/gpu`."""
    found = pods.requests(pod)
    ordered = sorted(found, key=lambda one: (one not in _RESOURCES, one))
    parts = [_amount(one, pods.quantity(found[one])) for one in ordered if pods.quantity(found[one])]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _amount(resource: str, number: float) -> str:
    if resource == "cpu":
        return "1 CPU" if number == 1 else f"{number:g} CPUs"
    if resource in ("memory", "ephemeral-storage"):
        return f"{_size(number)} of {_RESOURCES[resource]}"
    return f"{number:g} {resource}"


def _claims(said: str) -> tuple[str, str] | None:
    """Return what is wrong with the pod's storage, None if it is not that."""
    missing = _CLAIM.search(said)
    if missing:
        return (
            f"cannot start: there is no claim {missing[1]}",
            "Make it, or correct `kuberay.storage.claim` or `kuberay.volumes` in the cluster file.",
        )
    if _UNBOUND.search(said):
        return (
            "cannot start: no volume was found for its claim yet",
            "Why not: kubectl describe pvc. It needs a storage class that makes volumes, or a volume that fits "
            "(kuberay.storage: size, storage_class, access).",
        )
    return None


def _nodes(said: str, pod: Mapping[str, Any]) -> tuple[str, str]:
    total = _TOTAL.match(said)
    wants = asked(pod)
    begin = f"found no room for {wants}" if wants else "found no room"
    if total is None:
        return f"{begin}: {said or 'the scheduler does not say why'}", _hint(said)
    entries = [_entry(one) for one in _split(said[total.end() :])]
    of = f"of {wording.counted(int(total[1]), 'node')}"
    return f"{begin}; {of} {', '.join(entries)}", _hint(said)


def _split(text: str) -> list[str]:
    """Return the reasons, `1 Insufficient cpu`, without what the scheduler thought about preemption."""
    return re.split(r", (?=\d+ |pod has)", _THOUGHTS.split(text)[0].rstrip(". "))


def _entry(text: str) -> str:
    match = _ENTRY.match(text)
    if match is None:
        return text
    count, reason = match[1], match[2].rstrip(".")
    be = "is" if count == "1" else "are"
    for pattern, ours in _REASONS:
        found = re.fullmatch(pattern, reason)
        if found:
            named = found[1] if found.groups() else ""
            return f"{count} {be} {ours.format(_RESOURCES.get(named, named))}"
    return f"{count}: {reason}"


def _hint(said: str) -> str:
    if "Insufficient" in said:
        return "Ask for less in the cluster file, or add a machine (kuberay.wait_for_machines, if one comes by itself)."
    if "taint" in said:
        return "Tolerate the taint (kuberay.tolerations) if the cluster may use those machines."
    if "affinity/selector" in said:
        return "Correct kuberay.node_selector, or label a machine: kubectl label node NAME KEY=VALUE"
    if "anti-affinity" in said:
        return "There are fewer machines than nodes: `kuberay: {spread: preferred}`, or fewer nodes."
    if "unschedulable" in said:
        return "Let pods onto a machine again: kubectl uncordon NAME"
    return "What each machine has: kubectl describe nodes"


def _size(number: float) -> str:
    for unit in ("GiB", "MiB"):
        if number >= SIZES[unit]:
            return f"{number / SIZES[unit]:.4g}{unit}"
    return f"{number:.0f} bytes"
