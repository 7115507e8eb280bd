"""The Kubernetes nodes as a scheduler sees them: what is free on each, and whom it lets in; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trainyard.backends.kuberay import pods as pod
from trainyard.backends.kuberay.capacity import amounts
from trainyard.backends.kuberay.capacity.amounts import Amounts
from trainyard.seams.kube.types import Object

Taint = Mapping[str, Any]
_KEEPS_OUT = ("NoSchedule", "NoExecute")
_HOST_KEY = "kubernetes.io/hostname"
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Host:
    """A Kubernetes node. `refuses` is why it takes no pod at all, "" if it does.

    `users` are the pods that hold resources of a device, by the resource. `ours` are the cluster's nodes there: True
    for each that must be alone on its host.
    """

    name: str
    has: Amounts
    free: Amounts
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    refuses: str = ""
    users: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ours: tuple[bool, ...] = ()

    def with_pod(self, wanted: Amounts, *, alone: bool) -> Host:
        """Return the host with one more of the cluster's nodes on it."""
        return replace(self, free=amounts.minus(self.free, wanted), ours=(*self.ours, alone))


def hosts(nodes: Iterable[Object], pods: Iterable[Object], *, ours: Collection[str]) -> tuple[Host, ...]:
    """Return what is free beside the pods that are there; `ours` are the uids of the cluster's own pods that stay."""
    by_host: dict[str, list[Object]] = {}
    for one in pods:
        if pod.host(one) and pod.phase(one) not in _ENDED:
            by_host.setdefault(pod.host(one), []).append(one)
    found = [_host(one, by_host.get(one["metadata"]["name"], []), ours) for one in nodes]
    return tuple(sorted(found, key=lambda one: one.name))


def keeps_out(host: Host, *, selector: Mapping[str, str], tolerations: Collection[Taint]) -> str:
    """Return why a pod may not run on a host whatever is free there, "" if it may."""
    if host.refuses:
        return host.refuses
    lacking = [f"{key}={value}" for key, value in selector.items() if host.labels.get(key) != value]
    if lacking:
        return f"without label {' and '.join(lacking)}"
    for taint in host.taints:
        if taint.get("effect") in _KEEPS_OUT and not any(tolerates(one, taint) for one in tolerations):
            return f"taint {_taint(taint)} is not tolerated"
    return ""


def is_alone(spec: Mapping[str, Any]) -> bool:
    """Say whether a pod never runs on one host with others of its cluster."""
    against = (spec.get("affinity") or {}).get("podAntiAffinity") or {}
    terms = against.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    return any(term.get("topologyKey") == _HOST_KEY for term in terms)


def tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    """Say whether a toleration covers a taint (k8s.io/api/core/v1, Toleration.ToleratesTaint)."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def _host(node: Object, pods: list[Object], ours: Collection[str]) -> Host:
    status, spec = node.get("status") or {}, node.get("spec") or {}
    has = amounts.amounts(status.get("allocatable"))
    users: dict[str, tuple[str, ...]] = {}
    for one in pods:
        for resource in amounts.of_pod(one["spec"]):
            if "/" in resource:
                users[resource] = (*users.get(resource, ()), f"{one['metadata']['namespace']}/{pod.name(one)}")
    return Host(
        name=node["metadata"]["name"],
        has=has,
        free=amounts.minus(has, amounts.total(amounts.of_pod(one["spec"]) for one in pods)),
        labels=node["metadata"].get("labels") or {},
        taints=tuple(spec.get("taints") or ()),
        refuses=_refuses(node),
        users=users,
        ours=tuple(is_alone(one["spec"]) for one in pods if pod.uid(one) in ours),
    )


def _refuses(node: Object) -> str:
    if (node.get("spec") or {}).get("unschedulable"):
        return "cordoned"
    ready = pod.condition(node, "Ready")
    if ready.get("status") != "True":
        return "not ready"
    return ""


def _taint(taint: Taint) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"
