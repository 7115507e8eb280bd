"""Everything on Kubernetes that belongs to a cluster: what carries our label, and what KubeRay made for its RayCluster.

A RayCluster of the same name that is somebody else's has belongings of its own: they are told apart by their owner.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.backends.kuberay import names
from trainyard.backends.kuberay.site import Site, is_ours
from trainyard.backends.kuberay.there import side_by_side
from trainyard.seams.kube.errors import ForbiddenError
from trainyard.seams.kube.types import (
    CLAIM,
    CONFIG_MAP,
    POD,
    RAY_CLUSTER,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Kind,
    Object,
)


@dataclass(frozen=True)
class Sort:
    """A kind of belongings. `made_by_kuberay`: we make none ourselves, and may lack the right to ask for them."""

    kind: Kind
    noun: str
    made_by_kuberay: bool = False


# In the order in which they go: a claim can only go when no pod uses it any more.
SORTS = (
    Sort(POD, "pod"),
    Sort(SERVICE, "service", made_by_kuberay=True),
    Sort(SECRET, "secret"),
    Sort(CLAIM, "claim"),
    Sort(CONFIG_MAP, "config map", made_by_kuberay=True),
    Sort(SERVICE_ACCOUNT, "service account", made_by_kuberay=True),
    Sort(ROLE, "role", made_by_kuberay=True),
    Sort(ROLE_BINDING, "role binding", made_by_kuberay=True),
)


def own_ray_cluster(site: Site) -> Object | None:
    """Return the cluster's RayCluster; None if there is none, or one that is somebody else's."""
    found = site.kube.get(RAY_CLUSTER, site.name, namespace=site.namespace)
    return found if found is not None and is_ours(found, site.name) else None


def foreign_uid(site: Site) -> str | None:
    """Return the uid of a RayCluster of our name that somebody else made."""
    found = site.kube.get(RAY_CLUSTER, site.name, namespace=site.namespace)
    return None if found is None or is_ours(found, site.name) else str(found["metadata"]["uid"])


def everything(site: Site) -> dict[Sort, list[Object]]:
    """Return all belongings, asked for side by side."""
    return dict(zip(SORTS, side_by_side(lambda sort: of_sort(site, sort), SORTS), strict=True))


def of_sort(site: Site, sort: Sort) -> list[Object]:
    """Return the belongings of a kind, by name."""
    kube, namespace = site.kube, site.namespace
    try:
        found = kube.list(sort.kind, namespace=namespace, labels=names.of_cluster(site.name))
        made = kube.list(sort.kind, namespace=namespace, labels=names.of_ray_cluster(site.name))
    except ForbiddenError:
        if not sort.made_by_kuberay:
            raise
        return []
    owned = [one for one in found if _owners(one)]
    if made or owned:
        others = foreign_uid(site)
        # Who copies our RayCluster copies our label into its pods.
        found = [one for one in found if not _owners(one) or _is_own(one, site.name, others)]
        found += [one for one in made if _is_own(one, site.name, others)]
    by_name = {one["metadata"]["name"]: one for one in found}
    return [by_name[name] for name in sorted(by_name)]


def is_labelled(one: Object, name: str) -> bool:
    """Say whether we may remove it ourselves; what KubeRay made goes with its RayCluster."""
    return is_ours(one, name)


def _owners(one: Object) -> list[tuple[str, str]]:
    """Return name and uid of each RayCluster that an object belongs to."""
    owners = one["metadata"].get("ownerReferences") or ()
    return [(owner["name"], str(owner["uid"])) for owner in owners if owner["kind"] == RAY_CLUSTER.name]


def _is_own(one: Object, name: str, others: str | None) -> bool:
    """Say whether an object belongs to a RayCluster of ours, be it gone; `others` is the uid of one that is not."""
    return any(owner == name and uid != others for owner, uid in _owners(one))
