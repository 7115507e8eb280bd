"""`--purge` removes what Trainyard installed and no other cluster needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from trainyard import wording
from trainyard.backends.contract import Site
from trainyard.backends.kuberay import naming, operator, pods, removal
from trainyard.backends.kuberay.location import Location, is_ours, owners
from trainyard.backends.kuberay.removal import Left
from trainyard.backends.kuberay.snapshot import if_allowed
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.seams.helm import Helm
from trainyard.seams.kube import types as kinds
from trainyard.seams.kube.types import Kind, Object
from trainyard.steps import YES, Answer, Step, no, nothing

RAY_KINDS = (kinds.RAY_CLUSTER, kinds.RAY_JOB, kinds.RAY_SERVICE)
# A namespace with another user's object of these kinds stays. Other kinds exist only together with
# these, or are recreated automatically.
TENANTS = (kinds.POD, kinds.CLAIM, kinds.DEPLOYMENT, *RAY_KINDS)


def steps(where: Location, site: Site) -> list[Step]:
    """Return the steps of --purge.

    For each thing that stays, a step without action says why. Raises
    RequestError if other Ray objects need the operator, ForbiddenError if the
    user may not list them, and PrerequisiteError if Helm is missing but needed.
    """
    section = where.section.operator
    helm = operator.helm_of(where, site)
    crds = _crds(where)
    leave = "there is none that Trainyard installed"

    try:
        release = operator.release_of_ours(helm, where.kube, section)
    except PrerequisiteError as error:
        if crds or operator.made_by_us(where.kube, section.namespace):
            raise
        release = None
        leave = f"it is not known who made it ({error.what})"

    if release or crds:
        refuse_while_needed(where)

    operator_step = _leave("operator", f"Leave the KubeRay operator: {leave}")
    if release:
        operator_step = _operator_step(where, helm)
    namespaces = list(dict.fromkeys([section.namespace, where.namespace]))
    return [operator_step, _crds_step(where, crds), *_namespace_steps(where, namespaces)]


def refuse_while_needed(where: Location, what: str = "the KubeRay operator") -> None:
    """Raise RequestError if any other Ray object, anywhere, needs `what`."""
    users = []
    for kind in RAY_KINDS:
        for found in where.kube.list(kind):
            metadata = found["metadata"]
            if not _is_the_cluster(kind, found, where):
                users.append(f"{kind.name} {metadata['namespace']}/{metadata['name']}")
    if not users:
        return

    live = "1 other needs"
    if len(users) > 1:
        live = f"{len(users)} others need"
    raise RequestError(
        f"{what} is not removed: {live} it",
        where=wording.named(sorted(users)),
        hint="Leave out --purge: then only this cluster is removed. Or remove the other objects "
        "first.",
    )


def _is_the_cluster(kind: Kind, found: Object, where: Location) -> bool:
    metadata = found["metadata"]
    is_named = (metadata["namespace"], metadata["name"]) == (where.namespace, where.name)
    return kind == kinds.RAY_CLUSTER and is_named and is_ours(found, where.name)


def _operator_step(where: Location, helm: Helm) -> Step:
    section = where.section.operator
    listed = partial(where.kube.list, namespace=section.namespace, labels=operator.LABELLED)

    def left() -> Left:
        deployments = [(kinds.DEPLOYMENT, found) for found in listed(kinds.DEPLOYMENT)]
        return [*deployments, *((kinds.POD, found) for found in listed(kinds.POD))]

    def done() -> Answer:
        if helm.release(section.release, section.namespace) or left():
            return no("it is there")
        return YES

    def uninstall() -> None:
        refuse_while_needed(where)
        if helm.release(section.release, section.namespace):
            helm.uninstall(section.release, section.namespace)

    title = f"Uninstall the KubeRay operator from namespace {section.namespace}"
    return replace(removal.step(where, "uninstall-operator", title, left, uninstall), done=done)


def _crds_step(where: Location, crds: Left) -> Step:
    if not crds:
        return _leave("crds", "Leave KubeRay's CRDs: there are none that Trainyard made")

    spaces = [found["metadata"]["namespace"] for found in operator.find(where.kube) or ()]
    others = [space for space in spaces if space != where.section.operator.namespace]
    if others:
        title = f"Leave KubeRay's CRDs: the operator in namespace {others[0]} needs them"
        return _leave("crds", title)

    def remove() -> None:
        refuse_while_needed(where)
        removal.delete(where, _crds(where))

    title = f"Remove KubeRay's CRDs: {removal.names(crds)}"
    return removal.step(where, "remove-crds", title, lambda: _crds(where), remove)


def _namespace_steps(where: Location, names: Sequence[str]) -> list[Step]:
    """Return steps that remove unused namespaces, and say why others stay."""
    reasons = {name: _why_it_stays(where, name) for name in names}
    ours = [name for name, reason in reasons.items() if not reason]

    def left() -> Left:
        found = (where.kube.get(kinds.NAMESPACE, name) for name in ours)
        return [(kinds.NAMESPACE, namespace) for namespace in found if namespace]

    steps = []
    if ours:
        # One step removes all in parallel: Kubernetes takes 5 s for each namespace.
        title = f"Remove namespace{'s' * (len(ours) > 1)} {' and '.join(ours)}"
        steps.append(removal.step(where, "remove-namespaces", title, left))
    for name, reason in reasons.items():
        if reason:
            steps.append(_leave(f"namespace:{name}", f"Leave namespace {name}: {reason}"))
    return steps


def _why_it_stays(where: Location, name: str) -> str:
    if not operator.made_by_us(where.kube, name):
        return "there is none that Trainyard made"
    others = _tenants(where, name)
    if not others:
        return ""
    verb = "are"
    if len(others) == 1:
        verb = "is"
    return f"{wording.named(others)} {verb} in it"


def _tenants(where: Location, namespace: str) -> list[str]:
    """Return a namespace's objects without this cluster's and the operator's.

    Kinds that the user may not list are skipped.
    """
    others = []
    for kind in TENANTS:
        for found in if_allowed(where.kube.list, kind, namespace=namespace) or ():
            if not _is_known(kind, found, where):
                others.append(f"{kind.name} {found['metadata']['name']}")
    return others


def _is_known(kind: Kind, found: Object, where: Location) -> bool:
    """Say whether this cluster, the operator or a RayCluster owns an object.

    A RayCluster of another user is named itself, so its pods need no mention.
    """
    if kind == kinds.RAY_CLUSTER:
        return _is_the_cluster(kind, found, where)
    label, _, value = operator.LABELLED.partition("=")
    is_operator = pods.labels_of(found).get(label) == value
    return is_operator or bool(owners(found)) or is_ours(found, where.name)


def _crds(where: Location) -> Left:
    labelled = if_allowed(where.kube.list, kinds.CRD, labels=f"{naming.MADE_BY}={naming.US}") or []
    return [(kinds.CRD, crd) for crd in labelled if crd["spec"]["group"] == kinds.RAY_CLUSTER.group]


def _leave(what: str, title: str) -> Step:
    return Step(f"leave-{what}", title, done=lambda: YES, do=nothing)
