"""`cluster.down --purge`: the KubeRay operator, its CRDs and namespaces go, if we made them and nobody needs them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from trainyard.backends import wording
from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import names, site
from trainyard.backends.kuberay.operators import installing, operator
from trainyard.backends.kuberay.operators.operator import HelmRelease, Operator
from trainyard.backends.kuberay.removing import ray_users
from trainyard.backends.kuberay.removing.stuck import wait
from trainyard.backends.kuberay.removing.tenants import tenants
from trainyard.backends.kuberay.site import Site
from trainyard.backends.kuberay.there import seen
from trainyard.errors import LeftoverError, PrerequisiteError
from trainyard.seams.helm import Helm
from trainyard.seams.kube.errors import ForbiddenError
from trainyard.seams.kube.types import CRD, DEPLOYMENT, NAMESPACE, POD, Kind, Object
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import Operator as Section
from trainyard.steps import YES, Answer, Step, no

# What operators of a namespace agree on who leads by; Helm does not know it (ray-operator/main.go).
LEASE = Kind("coordination.k8s.io/v1", "leases", "Lease")
LEADER = "ray-operator-leader"


@dataclass(frozen=True)
class General:
    """What we made on a Kubernetes for clusters in general. `unknown` is why that cannot be told, "" if it can.

    `namespace` is where the file wants the operator.
    """

    site: Site
    helm: Helm
    release: HelmRelease | None
    namespace: str
    unknown: str = ""


def purge_steps(spec: ClusterSpec, tools: Tools, there: Site) -> list[Step]:
    """Return the steps; each says what stays, and why.

    Raises RequestError if others live from what would go, PrerequisiteError where that may not be asked, or cannot be
    done for want of Helm.
    """
    helm = Helm(tools.environ, site.kubeconfig(spec, tools), there.kube.context or None)
    return steps_of(general_of(there, helm, spec.kuberay.operator))


def steps_of(general: General) -> list[Step]:
    """Return the steps for what we made, as `purge_steps` does."""
    there, release = general.site, general.release
    if release or _definitions(there):
        ray_users.refuse(there)
    spaces = dict.fromkeys([release.namespace if release else general.namespace, there.namespace])
    return [_operator(general), _crds(general), *(_namespace(general, one) for one in spaces)]


def general_of(there: Site, helm: Helm, section: Section) -> General:
    """Return what we made. Raises PrerequisiteError without Helm where something of it is there."""
    try:
        return General(there, helm, installing.installed_by_us(there.kube, helm, section), section.namespace)
    except PrerequisiteError as error:
        # No Helm here, or no right to see its releases.
        if _made_something(there, section):
            raise
        return General(there, helm, None, section.namespace, unknown=error.what)


def _made_something(there: Site, section: Section) -> bool:
    """Say whether CRDs, or the namespace of an operator, are ours: then so is the operator, most likely."""
    if _definitions(there):
        return True
    found = seen(lambda: there.kube.get(NAMESPACE, section.namespace)).found
    made_by = ((found or {}).get("metadata", {}).get("labels") or {}).get(names.MADE_BY)
    is_alone = section.namespace == there.namespace and not _operators(there)
    return made_by == names.US and not is_alone


def _operator(general: General) -> Step:
    release = general.release
    if release is None:
        why = f"who made it cannot be told ({general.unknown})" if general.unknown else "Trainyard did not install one"
        return _leave(f"Leave the KubeRay operator: {why}")
    there = general.site
    selectors = [_selector(one) for one in _operators(there) if one.release == release]

    def deployments() -> list[Object]:
        return [one.deployment for one in _operators(there) if one.release == release]

    def pods() -> list[Object]:
        return [one for each in selectors for one in there.kube.list(POD, namespace=release.namespace, labels=each)]

    def done() -> Answer:
        if general.helm.release(release.name, release.namespace) is not None:
            return no(f"the Helm release {release.name} is there")
        return no("it still ends") if deployments() or pods() else YES

    def uninstall() -> None:
        ray_users.refuse(there)
        if general.helm.release(release.name, release.namespace) is not None:
            general.helm.uninstall(release.name, release.namespace)
        wait(there, DEPLOYMENT, deployments)
        wait(there, POD, pods)
        with suppress(ForbiddenError):
            there.kube.delete(LEASE, LEADER, namespace=release.namespace)

    return Step(f"Uninstall the KubeRay operator from namespace {release.namespace}", done=done, do=uninstall)


def _crds(general: General) -> Step:
    there = general.site
    made = _definitions(there)
    others = [one for one in _operators(there) if general.release is None or one.release != general.release]
    if not made:
        return _leave("Leave KubeRay's CRDs: Trainyard did not make them")
    if others:
        return _leave(f"Leave KubeRay's CRDs: the operator in namespace {others[0].namespace} needs them")

    def remove() -> None:
        ray_users.refuse(there)
        for one in _definitions(there):
            there.kube.delete(CRD, one["metadata"]["name"], uid=one["metadata"]["uid"])
        wait(there, CRD, lambda: _definitions(there))

    title = f"Remove KubeRay's CRDs: {wording.named([one['metadata']['name'] for one in made])}"
    return Step(title, done=lambda: no("still there") if _definitions(there) else YES, do=remove)


def _namespace(general: General, name: str) -> Step:
    """Return the step that removes a namespace of ours with nothing of others in it, or says why it stays."""
    there = general.site
    stays = _reason_to_stay(general, name)
    if stays:
        return _leave(f"Leave namespace {name}: {stays}")

    def left() -> list[Object]:
        found = there.kube.get(NAMESPACE, name)
        return [] if found is None else [found]

    def remove() -> None:
        # Somebody may have come since.
        why = _reason_to_stay(general, name)
        if why:
            raise LeftoverError(f"namespace {name} cannot go: {why}", hint="Repeat the command: it says what stays.")
        for one in left():
            there.kube.delete(NAMESPACE, name, uid=one["metadata"]["uid"])
        wait(there, NAMESPACE, left)

    return Step(f"Remove namespace {name}", done=lambda: no("still there") if left() else YES, do=remove)


def _reason_to_stay(general: General, name: str) -> str:
    there = general.site
    try:
        found = there.kube.get(NAMESPACE, name)
        if found is None:
            return ""
        if (found["metadata"].get("labels") or {}).get(names.MADE_BY) != names.US:
            return "Trainyard did not make it"
        others = tenants(there.kube, name, cluster=there.name, release=general.release)
    except ForbiddenError as error:
        return f"what is in it cannot be told ({error.what})"
    return f"{wording.named(others)} {'is' if len(others) == 1 else 'are'} in it" if others else ""


def _definitions(there: Site) -> list[Object]:
    """Return KubeRay's CRDs that we made, none where the user may not see them."""
    try:
        found = ray_users.definitions(there)
    except ForbiddenError:
        return []
    return [one for one in found if (one["metadata"].get("labels") or {}).get(names.MADE_BY) == names.US]


def _operators(there: Site) -> Sequence[Operator]:
    return operator.find(there.kube, there.namespace) or ()


def _selector(one: Operator) -> str:
    labels = one.deployment["spec"]["selector"]["matchLabels"]
    return ",".join(f"{name}={value}" for name, value in labels.items())


def _leave(title: str) -> Step:
    return Step(title, done=lambda: YES, do=lambda: None)
