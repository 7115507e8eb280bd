"""Findings below a cluster: a missing or old operator, and hosts in trouble."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard import versions
from trainyard.backends.contract import Finding
from trainyard.backends.kuberay import location, operator, pods
from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.snapshot import cluster_pods, if_allowed
from trainyard.seams.kube.types import NODE, Object
from trainyard.seams.threads import side_by_side

OPERATOR = "KubeRay operator"


def findings(where: Location) -> list[Finding]:
    """Look at the operator and the hosts of the cluster's pods, as far as the user may see them."""
    own = cluster_pods(where)
    names = sorted({pods.host(pod) for pod in own} - {""})
    hosts = if_allowed(side_by_side, lambda name: where.kube.get(NODE, name), names) or []
    found = [
        finding for host in hosts if host for finding in of_host(host, location.kubectl(where))
    ]
    operators = operator.find(where.kube) if own else None
    if operators is None:
        return found
    return [*of_operators(operators, where), *found]


def of_operators(operators: tuple[Object, ...], where: Location) -> Iterator[Finding]:
    """Yield that no operator runs, and each operator that is too old."""
    if not any(pods.condition(each, "Available").get("status") == "True" for each in operators):
        message = (
            "none runs: no node that ends is made again, and no change of the file takes effect"
        )
        yield Finding(OPERATOR, message, "trainyard cluster.up")

    for each in filter(operator.is_old, operators):
        at = f"deployment {each['metadata']['name']} in namespace {each['metadata']['namespace']}"
        remedy = (
            f"Have it upgraded, its CRDs first: {operator.how_to_apply(where.section.operator)}"
        )
        yield Finding(
            OPERATOR,
            f"{at} is older than {versions.OLDEST_KUBERAY}: it starts nodes without a token",
            remedy,
        )


def of_host(host: Object, kubectl: str) -> Iterator[Finding]:
    """Yield the conditions of a Kubernetes node under which pods are ended, or are not started."""
    name = pods.name(host)
    for condition in host["status"].get("conditions") or ():
        kind = condition["type"]
        is_true = condition["status"] == "True"
        if is_true != (kind == "Ready"):
            said = condition.get("message") or condition.get("reason") or ""
            if is_true:
                trouble = f"{kind}: Kubernetes ends pods there"
            else:
                trouble = "it is not ready: its pods count as lost"
            yield Finding(name, f"{trouble} ({said})", f"{kubectl} describe node {name}")
