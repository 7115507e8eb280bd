"""The rights that a cluster needs in its namespace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from trainyard.backends.kuberay import leash
from trainyard.backends.kuberay.location import Location
from trainyard.errors import Problem
from trainyard.seams.kube.errors import ForbiddenError
from trainyard.seams.kube.types import (
    BUDGET,
    CLAIM,
    NETWORK_POLICY,
    POD,
    RAY_CLUSTER,
    SECRET,
    Kind,
    Right,
)
from trainyard.seams.threads import side_by_side
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import KuberaySection

# The verbs by kind and subresource ("" for the kind itself), as in a Role's rules.
Verbs = Mapping[tuple[Kind, str], tuple[str, ...]]
_CHANGES = ("get", "create", "patch", "delete")
REMOVE: Verbs = {
    (RAY_CLUSTER, ""): ("get", "delete"),
    (SECRET, ""): ("get", "delete"),
    (CLAIM, ""): ("get", "delete"),
    (POD, ""): ("list", "delete"),
}
MAKE: Verbs = {
    **REMOVE,
    (RAY_CLUSTER, ""): _CHANGES,
    (SECRET, ""): _CHANGES,
    # seams/kube requests a port-forward with GET.
    (POD, "portforward"): ("get",),
}
STORAGE: Verbs = {(CLAIM, ""): _CHANGES}
BUDGETS: Verbs = {(BUDGET, ""): _CHANGES}
POLICIES: Verbs = {(NETWORK_POLICY, ""): _CHANGES}
LEASH: Verbs = {(kind, ""): _CHANGES for kind in leash.KINDS}


def needed(spec: ClusterSpec, section: KuberaySection) -> Verbs:
    """Return the rights to make, use and remove the cluster."""
    verbs = {**MAKE}
    if section.storage is not None and section.storage.size is not None:
        verbs |= STORAGE
    if section.disruption_budget:
        verbs |= BUDGETS
    if section.network_policy:
        verbs |= POLICIES
    if spec.leash:
        verbs |= LEASH
    return verbs


def refuse_missing(where: Location, verbs: Verbs) -> None:
    """Raise ForbiddenError with all of these rights that the user lacks."""
    everything = Right("*", "*", "*")
    if where.kube.may(everything, namespace=where.namespace):
        return

    wanted = list(_rights(verbs))
    answers = side_by_side(lambda right: where.kube.may(right, namespace=where.namespace), wanted)
    lacking = [right for right, may in zip(wanted, answers, strict=True) if not may]
    if lacking:
        raise ForbiddenError(
            f"user {where.kube.access.user or '(unknown)'} lacks rights that cluster {where.name} "
            "needs",
            where=str(where),
            problems=tuple(_problems(lacking)),
            hint="A Role with all of them is in docs/kuberay.md, under `Rights`: have it applied "
            "by an administrator of this Kubernetes.",
        )


def _rights(verbs: Verbs) -> Iterator[Right]:
    for (kind, part), of_kind in verbs.items():
        resource = kind.plural
        if part:
            resource += f"/{part}"
        for verb in of_kind:
            yield Right(verb, kind.group, resource)


def _problems(lacking: Iterable[Right]) -> Iterator[Problem]:
    by_resource: dict[str, list[str]] = {}
    for right in lacking:
        name = right.resource
        if right.group:
            name += f".{right.group}"
        by_resource.setdefault(name, []).append(right.verb)
    return (Problem(name, ", ".join(verbs)) for name, verbs in by_resource.items())
