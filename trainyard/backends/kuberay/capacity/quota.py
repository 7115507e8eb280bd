"""What a namespace lets its pods use, compared with what a cluster's pods will; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard.backends.kuberay.capacity import amounts
from trainyard.backends.kuberay.capacity.amounts import Amounts
from trainyard.backends.kuberay.capacity.demands import Demand
from trainyard.seams.kube.types import Object

# What a ResourceQuota calls the sum of requests (kubernetes.io, "Resource Quotas").
_BARE = ("cpu", "memory", "ephemeral-storage")


def over_quota(quotas: Sequence[Object], wanted: Sequence[Demand], *, gone: Sequence[Object] = ()) -> list[str]:
    """Say which quotas the pods would exceed, in what, and by how much; `gone` are pods that are counted no more."""
    return [said for quota in quotas for said in _over(quota, wanted, gone)]


def out_of_range(ranges: Sequence[Object], wanted: Sequence[Demand]) -> list[str]:
    """Say which limits of single pods or containers a LimitRange forbids."""
    by_group = {one.group: one for one in wanted}
    return [
        said
        for found in ranges
        for rule in found["spec"].get("limits") or ()
        if rule.get("type") in ("Container", "Pod")
        for demand in by_group.values()
        for said in _outside(found["metadata"]["name"], rule, demand)
    ]


def _over(quota: Object, wanted: Sequence[Demand], gone: Sequence[Object]) -> Iterator[str]:
    counted = [one for one in wanted if _counts(quota.get("spec") or {}, one)]
    if not counted:
        return
    requests = amounts.total(one.requests for one in counted)
    limits = amounts.total(one.limits for one in counted)
    freed = [amounts.total(amounts.of_pod(one["spec"], kind=kind) for one in gone) for kind in ("requests", "limits")]
    status = quota.get("status") or {}
    hard = amounts.amounts(status.get("hard") or (quota.get("spec") or {}).get("hard"))
    used = amounts.amounts(status.get("used"))
    for name, most in sorted(hard.items()):
        resource, wants = _wants(name, requests, limits)
        free = most - used.get(name, 0) + _wants(name, *freed)[1]
        # One that is overdrawn already, in what we want none of, is not about us.
        if wants and wants > free:
            yield (
                f"quota {quota['metadata']['name']}: {name}: {amounts.shown(resource, wants)} wanted, "
                f"{amounts.shown(resource, free)} of {amounts.shown(resource, most)} free"
            )


def _wants(name: str, requests: Amounts, limits: Amounts) -> tuple[str, int]:
    """Return the resource behind a quota's word, and how much of it the pods want."""
    if name in ("pods", "count/pods"):
        return "pods", requests.get(amounts.PODS, 0)
    if name in _BARE:
        return name, requests.get(name, 0)
    prefix, _, resource = name.partition(".")
    if prefix == "requests":
        return resource, requests.get(resource, 0)
    return (resource, limits.get(resource, 0)) if prefix == "limits" else (name, 0)


def _counts(spec: Mapping[str, Any], demand: Demand) -> bool:
    """Say whether a quota is about such a pod: it has requests, and runs until it is removed."""
    scopes = [{"scopeName": one, "operator": "Exists"} for one in spec.get("scopes") or ()]
    scopes += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return all(_is_in(one, demand) for one in scopes)


def _is_in(scope: Mapping[str, Any], demand: Demand) -> bool:
    if scope["scopeName"] != "PriorityClass":
        return scope["scopeName"] in ("NotBestEffort", "NotTerminating")
    operator, values = scope.get("operator"), scope.get("values") or ()
    if operator in ("In", "NotIn"):
        return bool(demand.priority_class in values) is (operator == "In")
    return (demand.priority_class is not None) == (operator == "Exists")


def _outside(name: str, rule: Mapping[str, Any], demand: Demand) -> Iterator[str]:
    each = demand.containers if rule["type"] == "Container" else ((demand.requests, demand.limits),)
    for requests, limits in each:
        for word, amount, of in (("most", limits, rule.get("max")), ("least", requests, rule.get("min"))):
            for resource, bound in amounts.amounts(of).items():
                wants = amount.get(resource, 0)
                if wants and (wants > bound if word == "most" else wants < bound):
                    yield (
                        f"limit range {name}: {demand.group}: {resource}: {amounts.shown(resource, wants)} wanted, "
                        f"at {word} {amounts.shown(resource, bound)} allowed for a {rule['type'].lower()}"
                    )
