"""What pods ask for and machines have, in whole thousandths: sums of CPUs must not lose a thousandth; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainyard.backends.kuberay.pods import quantity
from trainyard.spec.units import SIZES, format_size

# Thousandths by the name of the resource: {"cpu": 1500} is one and a half CPUs.
Amounts = Mapping[str, int]
PODS = "pods"
# What KubeRay gives its containers (ray-operator/controllers/ray/common/pod.go: BuildAutoscalerContainer, and
# wait-gcs-ready in DefaultWorkerPodTemplate).
AUTOSCALER = {"cpu": "500m", "memory": "512Mi"}
WAIT_FOR_HEAD = {"cpu": "200m", "memory": "256Mi"}
_SIZES = ("memory", "ephemeral-storage", "storage")


def amounts(written: Mapping[str, Any] | None) -> dict[str, int]:
    """Return what an object of the API says in quantities, such as {"cpu": "500m"}."""
    return {str(name): round(quantity(str(value)) * 1000) for name, value in (written or {}).items()}


def of_pod(spec: Mapping[str, Any], *, kind: str = "requests") -> dict[str, int]:
    """Return what a pod asks the scheduler for, or with `kind="limits"` what it may use at most; one of `pods`.

    Init containers run one after the other before the rest, those that stay (restartPolicy Always) beside it
    (kubernetes.io, "Sidecar containers": resource sharing within containers).
    """
    running = total(of_container(one, kind=kind) for one in spec.get("containers") or ())
    most: dict[str, int] = {}
    for one in spec.get("initContainers") or ():
        own = of_container(one, kind=kind)
        if one.get("restartPolicy") == "Always":
            running = total((running, own))
        else:
            most = {name: max(most.get(name, 0), own.get(name, 0)) for name in most.keys() | own.keys()}
    larger = {name: max(running.get(name, 0), most.get(name, 0)) for name in running.keys() | most.keys()}
    return total((larger, amounts(spec.get("overhead")), {PODS: 1000}))


def of_container(container: Mapping[str, Any], *, kind: str = "requests") -> dict[str, int]:
    """Return what a container asks for: what is only limited is requested as well."""
    resources = container.get("resources") or {}
    if kind == "limits":
        return amounts(resources.get("limits"))
    return {**amounts(resources.get("limits")), **amounts(resources.get("requests"))}


def total(several: Iterable[Amounts]) -> dict[str, int]:
    """Return the sum."""
    found: dict[str, int] = {}
    for one in several:
        for name, amount in one.items():
            found[name] = found.get(name, 0) + amount
    return found


def minus(have: Amounts, taken: Amounts) -> dict[str, int]:
    """Return what is left of each resource that there is."""
    return {name: amount - taken.get(name, 0) for name, amount in have.items()}


def fits(wanted: Amounts, free: Amounts) -> bool:
    """Say whether there is enough of everything."""
    return all(free.get(name, 0) >= amount for name, amount in wanted.items() if amount)


def shown(name: str, amount: int) -> str:
    """Return an amount as people write it: `1.5` CPUs, `2GiB` of memory."""
    if name.rpartition(".")[2] in _SIZES:
        return _size(max(amount, 0) // 1000)
    return f"{max(amount, 0) / 1000:g}"


def _size(size: int) -> str:
    """Return bytes in a unit that people compare in; what is no round number is rounded down: it is what is free."""
    if size == 0:
        return "0"
    if size % SIZES["MiB"] == 0 or size < SIZES["MiB"]:
        return format_size(size)
    if size < SIZES["GiB"]:
        return f"{size // SIZES['MiB']}MiB"
    return f"{size * 10 // SIZES['GiB'] / 10:g}GiB"
