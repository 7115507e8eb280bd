"""A cluster's owner: an annotation of the RayCluster and the outputs claim."""

from __future__ import annotations

from trainyard.backends.kuberay import location, naming, pods
from trainyard.backends.kuberay.location import Location
from trainyard.seams.kube.types import CLAIM, RAY_CLUSTER, Kind, Object
from trainyard.steps import YES, Answer, Step, no


def of(where: Location, live: Object | None) -> str:
    """Return a cluster's owner; "" if no object names one.

    `live` is the RayCluster. Without it, the outputs claim is read, which may
    outlive it.
    """
    found = live or where.kube.get(CLAIM, naming.claim(where.name), namespace=where.namespace)
    if found and location.is_ours(found, where.name):
        return named_by(found)
    return ""


def named_by(found: Object) -> str:
    return pods.annotations_of(found).get(naming.OWNER, "")


def is_other(where: Location, owner: str) -> bool:
    return owner not in ("", where.owner)


def take_step(where: Location, owner: str) -> Step:
    """Return the step that makes this user the owner."""

    def marked() -> list[tuple[Kind, Object]]:
        names = {RAY_CLUSTER: where.name, CLAIM: naming.claim(where.name)}
        objects = []
        for kind, name in names.items():
            found = where.kube.get(kind, name, namespace=where.namespace)
            if found and is_other(where, named_by(found)):
                objects.append((kind, found))
        return objects

    def done() -> Answer:
        if marked():
            return no(f"it belongs to {owner}")
        return YES

    def take() -> None:
        change = {"metadata": {"annotations": {naming.OWNER: where.owner}}}
        for kind, found in marked():
            name = found["metadata"]["name"]
            where.kube.patch(kind, name, change, namespace=where.namespace)

    return Step("take-over", f"Take the cluster over from {owner}", done, take)
