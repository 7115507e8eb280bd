"""The steps that remove everything of a cluster from Kubernetes, and prove it."""

from __future__ import annotations

from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import naming, purge, removal
from trainyard.backends.kuberay.location import Location, is_ours, owners
from trainyard.backends.kuberay.removal import Left
from trainyard.backends.kuberay.snapshot import cluster_pods, side_by_side
from trainyard.backends.record import forget_step
from trainyard.seams.kube.types import CLAIM, POD, RAY_CLUSTER, SECRET
from trainyard.steps import Step


def steps(where: Location, tools: Tools, *, with_purge: bool) -> list[Step]:
    """Return the steps that remove what belongs to the cluster at this location, and our own directory of it."""
    # Refuses before anything is removed.
    besides = purge.steps(where, tools) if with_purge else []
    live = where.kube.get(RAY_CLUSTER, where.name, namespace=where.namespace)
    title = f"Remove the RayCluster {where.name} in {where}"
    if live is not None and not is_ours(live, where.name):
        title = f"Leave the RayCluster {where.name} alone: Trainyard did not make it"
    uids = removal.uids(where, live, cluster_pods(where))
    cluster = removal.ray_cluster_step(where, title, uids, disruptive=True)
    return [cluster, _rest_step(where), *besides, forget_step(tools.state)]


def _rest_step(where: Location) -> Step:
    """Return the step after which nothing carries the cluster's label."""
    now = _labelled(where)
    title = f"Remove what belongs to it: {removal.names(now)}" if now else "Leave nothing with the cluster's label"
    return removal.step(where, title, lambda: _labelled(where))


def _labelled(where: Location) -> Left:
    """Return what we made beside the RayCluster; what has an owner goes with that, as do pods of a copy of ours."""
    labels, kinds = naming.of_cluster(where.name), (POD, SECRET, CLAIM)
    every = side_by_side(lambda kind: where.kube.list(kind, namespace=where.namespace, labels=labels), kinds)
    return [(kind, found) for kind, of_kind in zip(kinds, every, strict=True) for found in of_kind if not owners(found)]
