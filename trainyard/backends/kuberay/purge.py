"""`cluster.down --purge`: the KubeRay operator, its CRDs and namespaces go, if we made them and nobody needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from trainyard.backends import wording
from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import finalizers, naming, operator
from trainyard.backends.kuberay.location import Location, is_ours
from trainyard.backends.kuberay.snapshot import if_allowed
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.seams.kube.errors import ForbiddenError
from trainyard.seams.kube.types import (
    CLAIM,
    CRD,
    DEPLOYMENT,
    NAMESPACE,
    POD,
    RAY_CLUSTER,
    RAY_JOB,
    RAY_SERVICE,
    Kind,
    Object,
)
from trainyard.steps import YES, Step, no

# What people would lose with a namespace; the rest follows from these, or is made again.
TENANTS = (POD, CLAIM, DEPLOYMENT)


def steps(where: Location, tools: Tools) -> list[Step]:
    """Return the steps; each says what stays, and why.

    Raises RequestError if others live from what would go, PrerequisiteError where that may not be asked, or cannot be
    done for want of Helm.
    """
    section, helm = where.section.operator, operator.helm_of(where, tools)
    crds = [crd["metadata"]["name"] for crd in _crds(where)]
    made = bool(crds) or operator.made_by_us(where.kube, section.namespace)
    try:
        release, unknown = operator.release_of_ours(helm, where.kube, section), ""
    except PrerequisiteError as error:
        if made:
            raise
        release, unknown = None, f"who made it cannot be told ({error.what})"
    if release or crds:
        refuse_users(where)

    def deployments() -> list[Object]:
        kinds = (DEPLOYMENT, POD)
        every = [where.kube.list(kind, namespace=section.namespace, labels=operator.LABELLED) for kind in kinds]
        return [each for found in every for each in found]

    def uninstall() -> None:
        refuse_users(where)
        if helm.release(section.release, section.namespace):
            helm.uninstall(section.release, section.namespace)
        finalizers.wait(where, POD, deployments)

    uninstalling = _leave(f"Leave the KubeRay operator: {unknown or 'there is none that Trainyard installed'}")
    if release:
        title = f"Uninstall the KubeRay operator from namespace {section.namespace}"
        uninstalling = Step(
            title,
            lambda: no("it is there") if helm.release(section.release, section.namespace) or deployments() else YES,
            uninstall,
        )
    spaces = dict.fromkeys([section.namespace, where.namespace])
    return [uninstalling, _crds_step(where, crds), *(_namespace_step(where, name) for name in spaces)]


def refuse_users(where: Location) -> None:
    """Raise RequestError if others have Ray clusters, jobs or services in any namespace; they are named."""
    try:
        found = sorted(
            f"{kind.name} {each['metadata']['namespace']}/{each['metadata']['name']}"
            for kind in (RAY_CLUSTER, RAY_JOB, RAY_SERVICE)
            for each in where.kube.list(kind)
            if not _is_the_cluster(kind, each, where)
        )
    except ForbiddenError as error:
        raise PrerequisiteError(
            "whether others need the KubeRay operator cannot be told, so that it does not go",
            where=error.what,
            hint="Leave out --purge; who may look into all namespaces can purge.",
        ) from error
    if found:
        live = "1 other lives" if len(found) == 1 else f"{len(found)} others live"
        raise RequestError(
            f"the KubeRay operator does not go: {live} from it",
            where=wording.named(found),
            hint="Leave out --purge: this cluster alone goes then. Or remove those first.",
        )


def _is_the_cluster(kind: Kind, found: Object, where: Location) -> bool:
    metadata = found["metadata"]
    is_named = (metadata["namespace"], metadata["name"]) == (where.namespace, where.name)
    return kind == RAY_CLUSTER and is_named and is_ours(found, where.name)


def _crds_step(where: Location, crds: Sequence[str]) -> Step:
    if not crds:
        return _leave("Leave KubeRay's CRDs: there are none that Trainyard made")
    others = [each for each in operator.find(where.kube) or () if each.namespace != where.section.operator.namespace]
    if others:
        return _leave(f"Leave KubeRay's CRDs: the operator in namespace {others[0].namespace} needs them")

    def remove() -> None:
        refuse_users(where)
        for crd in _crds(where):
            where.kube.delete(CRD, crd["metadata"]["name"], uid=crd["metadata"]["uid"])
        finalizers.wait(where, CRD, lambda: _crds(where))

    return _removal(f"Remove KubeRay's CRDs: {wording.named(crds)}", lambda: _crds(where), remove)


def _namespace_step(where: Location, name: str) -> Step:
    """Return the step that removes a namespace of ours with nothing of others in it, or says why it stays."""
    reply = if_allowed(lambda: where.kube.get(NAMESPACE, name))
    if reply.refusal:
        return _leave(f"Leave namespace {name}: {reply.refusal.what}")
    if reply.found and not operator.made_by_us(where.kube, name):
        return _leave(f"Leave namespace {name}: Trainyard did not make it")
    others = _tenants(where, name)
    if others:
        return _leave(f"Leave namespace {name}: {wording.named(others)} {'is' if len(others) == 1 else 'are'} in it")

    def left() -> list[Object]:
        found = where.kube.get(NAMESPACE, name)
        return [found] if found else []

    def remove() -> None:
        where.kube.delete(NAMESPACE, name)
        finalizers.wait(where, NAMESPACE, left)

    return _removal(f"Remove namespace {name}", left, remove)


def _tenants(where: Location, namespace: str) -> list[str]:
    """Return what others would lose with a namespace, besides the cluster and the operator, which go anyway."""
    label, _, value = operator.LABELLED.partition("=")
    found = []
    for kind in TENANTS:
        for each in if_allowed(partial(where.kube.list, kind, namespace=namespace)).found or ():
            is_operator = (each["metadata"].get("labels") or {}).get(label) == value
            if not (is_operator or is_ours(each, where.name) or each["metadata"].get("ownerReferences")):
                found.append(f"{kind.name} {each['metadata']['name']}")
    return found


def _crds(where: Location) -> list[Object]:
    found = if_allowed(lambda: where.kube.list(CRD, labels=f"{naming.MADE_BY}={naming.US}")).found or []
    return [crd for crd in found if crd["spec"]["group"] == RAY_CLUSTER.group]


def _removal(title: str, left: Callable[[], list[Object]], remove: Callable[[], None]) -> Step:
    return Step(title, lambda: no("still there") if left() else YES, remove)


def _leave(title: str) -> Step:
    return Step(title, done=lambda: YES, do=lambda: None)
