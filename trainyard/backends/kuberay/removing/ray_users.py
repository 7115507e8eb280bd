"""Who lives from the KubeRay operator and its CRDs besides this cluster: while there is anybody, neither goes."""

from __future__ import annotations

from trainyard.backends import wording
from trainyard.backends.kuberay.site import Site, is_ours
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.seams.kube.errors import ForbiddenError
from trainyard.seams.kube.types import CRD, RAY_CLUSTER, RAY_JOB, RAY_SERVICE, Kind, Object

GROUP = "ray.io"


def refuse(site: Site) -> None:
    """Raise RequestError if others have Ray clusters, jobs or services in any namespace; they are named.

    Raises PrerequisiteError where the user may not ask.
    """
    try:
        crds = definitions(site)
        kinds = {kind.plural: kind for kind in (RAY_CLUSTER, RAY_JOB, RAY_SERVICE, *map(kind_of, crds))}
        found = [one for kind in kinds.values() for one in _others(site, kind)]
    except ForbiddenError as error:
        raise PrerequisiteError(
            "whether others need the KubeRay operator cannot be told, so that it does not go",
            where=error.what,
            hint="Leave out --purge; who may look into all namespaces can purge.",
        ) from error
    if found:
        raise RequestError(
            f"the KubeRay operator does not go: {_counted(len(found))} from it",
            where=wording.named(found),
            hint="Leave out --purge: this cluster alone goes then. Or remove those first.",
        )


def definitions(site: Site) -> list[Object]:
    """Return KubeRay's CRDs, whoever made them."""
    return [one for one in site.kube.list(CRD) if one["spec"]["group"] == GROUP]


def _others(site: Site, kind: Kind) -> list[str]:
    found = []
    for one in site.kube.list(kind):
        metadata = one["metadata"]
        own = kind == RAY_CLUSTER and metadata["namespace"] == site.namespace and metadata["name"] == site.name
        if not (own and is_ours(one, site.name)):
            found.append(f"{kind.name} {metadata['namespace']}/{metadata['name']}")
    return sorted(found)


def kind_of(crd: Object) -> Kind:
    """Return the kind that a CRD defines, in a version that is served; the API knows nothing of the others."""
    spec = crd["spec"]
    versions = sorted(spec["versions"], key=lambda one: (not one.get("served"), not one.get("storage")))
    version = versions[0]["name"]
    return Kind(f"{spec['group']}/{version}", spec["names"]["plural"], spec["names"]["kind"])


def _counted(count: int) -> str:
    return "1 other lives" if count == 1 else f"{count} others live"
