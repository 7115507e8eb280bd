"""The steps that remove everything of a cluster from Kubernetes, and prove it."""

from __future__ import annotations

from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import naming, ownership, purge, removal, rights
from trainyard.backends.kuberay.location import Location, is_ours, owners
from trainyard.backends.kuberay.removal import Left
from trainyard.backends.kuberay.snapshot import cluster_pods
from trainyard.backends.shared import refusal
from trainyard.backends.shared.record import forget_step
from trainyard.seams.kube.types import CLAIM, POD, RAY_CLUSTER, SECRET
from trainyard.seams.threads import side_by_side
from trainyard.steps import Step


def steps(where: Location, tools: Tools, *, with_purge: bool) -> list[Step]:
    """Return the steps that remove the cluster at this location, and its record."""
    # These refuse before anything is removed.
    rights.refuse_missing(where, rights.REMOVE)
    besides = purge.steps(where, tools) if with_purge else []
    live = where.kube.get(RAY_CLUSTER, where.name, namespace=where.namespace)
    title = f"Remove the RayCluster {where.name} in {where}"

    if live is not None and not is_ours(live, where.name):
        title = f"Leave the RayCluster {where.name} alone: Trainyard did not make it"

    uids = removal.uids(where, live, cluster_pods(where))
    cluster = removal.ray_cluster_step(where, "remove-ray-cluster", title, uids, disruptive=True)
    theirs = ownership.of(where, live)
    foreign: list[Step] = []

    if ownership.is_other(where, theirs) and not tools.adopt:
        if with_purge:
            command = "cluster.down --purge"
        else:
            command = "cluster.down"
        foreign = [refusal.of_foreign_cluster(ownership.refused(where, theirs, command=command))]

    return [*foreign, cluster, _rest_step(where), *besides, forget_step(tools.state)]


def _rest_step(where: Location) -> Step:
    """Return the step after which nothing carries the cluster's label."""
    now = _labelled(where)
    if now:
        title = f"Remove what belongs to it: {removal.names(now)}"
    else:
        title = "Leave nothing with the cluster's label"
    return removal.step(where, "remove-labelled", title, lambda: _labelled(where))


def _labelled(where: Location) -> Left:
    """Return the cluster's own objects besides the RayCluster.

    An object that has an owner goes with it, as do pods of the cluster's copies. Secrets and the
    claim are asked for by name: the right to list Secrets is the right to read every Secret of the
    namespace.
    """
    kube = where.kube
    name = where.name
    namespace = where.namespace
    secrets = (naming.token_secret, naming.pull_secret, naming.verify_secret)
    known = [*((SECRET, of(name)) for of in secrets), (CLAIM, naming.claim(name))]
    existing = side_by_side(lambda each: kube.get(*each, namespace=namespace), known)
    pods = kube.list(POD, namespace=namespace, labels=naming.of_cluster(name))
    every = [
        *((POD, pod) for pod in pods),
        *((kind, found) for (kind, _), found in zip(known, existing, strict=True) if found),
    ]

    return [
        (kind, found) for kind, found in every if is_ours(found, where.name) and not owners(found)
    ]
