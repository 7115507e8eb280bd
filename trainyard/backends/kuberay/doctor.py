"""Findings of `cluster.doctor` about the operator and about hosts."""

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
    """Return findings on the operator, and on the hosts of the cluster's pods.

    Without pods nothing is checked. Checks for which the user lacks a right are
    skipped.
    """
    existing = cluster_pods(where)
    names = sorted({pods.host(pod) for pod in existing} - {""})
    hosts = if_allowed(side_by_side, lambda name: where.kube.get(NODE, name), names) or []

    found: list[Finding] = []
    if existing:
        operators = operator.find(where.kube)
        if operators is not None:
            found += of_operators(operators, where)
    for host in hosts:
        if host:
            found += of_host(host, location.kubectl(where))
    return found


def of_operators(operators: tuple[Object, ...], where: Location) -> Iterator[Finding]:
    """Yield a finding if no operator runs, and one for each old operator."""
    if not any(pods.is_true(deployment, "Available") for deployment in operators):
        message = (
            "none runs: a node that ends is not replaced, and changes of the file have no effect"
        )
        yield Finding(OPERATOR, message, "trainyard cluster.up")

    for deployment in filter(operator.is_old, operators):
        metadata = deployment["metadata"]
        message = (
            f"deployment {metadata['name']} in namespace {metadata['namespace']} is older than "
            f"{versions.OLDEST_KUBERAY}: it starts nodes without a token"
        )
        command = operator.how_to_apply(where.section.operator)
        yield Finding(OPERATOR, message, f"Have it upgraded, its CRDs first: {command}")


def of_host(host: Object, kubectl: str) -> Iterator[Finding]:
    """Yield a finding for each bad condition: not Ready, or under pressure."""
    name = pods.name(host)
    for condition in host["status"].get("conditions") or ():
        kind = condition["type"]
        is_true = condition["status"] == "True"
        if is_true == (kind == "Ready"):
            continue

        trouble = "it is not ready: its pods count as lost"
        if is_true:
            trouble = f"{kind}: Kubernetes ends pods there"
        reason = condition.get("message") or condition.get("reason") or ""
        yield Finding(name, f"{trouble} ({reason})", f"{kubectl} describe node {name}")
