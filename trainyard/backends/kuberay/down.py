"""The steps that remove a cluster from Kubernetes until nothing is left."""

from __future__ import annotations

from trainyard.backends.contract import Site
from trainyard.backends.kuberay import naming, ownership, purge, removal, rights
from trainyard.backends.kuberay.location import Location, is_ours, owners
from trainyard.backends.kuberay.removal import Left
from trainyard.backends.kuberay.snapshot import cluster_pods
from trainyard.backends.shared import refusal
from trainyard.backends.shared.owner import refused
from trainyard.backends.shared.record import forget_step
from trainyard.seams.kube.types import CLAIM, POD, RAY_CLUSTER, SECRET
from trainyard.seams.threads import side_by_side
from trainyard.steps import Step


def steps(where: Location, site: Site, *, with_purge: bool) -> list[Step]:
    """Return the steps that remove the cluster and its record."""
    # The checks of rights and of --purge may raise, so they come before any removal.
    rights.refuse_missing(where, rights.REMOVE)
    purge_steps: list[Step] = []
    if with_purge:
        purge_steps = purge.steps(where, site)

    live = where.kube.get(RAY_CLUSTER, where.name, namespace=where.namespace)
    title = f"Remove the RayCluster {where.name} in {where}"
    if live is not None and not is_ours(live, where.name):
        title = f"Leave the RayCluster {where.name} alone: Trainyard did not make it"

    # `uids` excludes a RayCluster that Trainyard did not make, so the step leaves it alone.
    uids = removal.uids(where, live, cluster_pods(where))
    cluster = removal.ray_cluster_step(where, "remove-ray-cluster", title, uids, disruptive=True)
    steps = [cluster, _rest_step(where), *purge_steps, forget_step(site.state)]

    owner = ownership.of(where, live)
    if ownership.is_other(where, owner) and not site.wishes.adopt:
        command = "cluster.down"
        if with_purge:
            command += " --purge"
        error = refused(where.name, owner, ours=where.owner, command=command)
        steps.insert(0, refusal.of_foreign_cluster(error))
    return steps


def _rest_step(where: Location) -> Step:
    now = _labelled(where)
    if now:
        title = f"Remove what belongs to the cluster: {removal.names(now)}"
    else:
        title = "Leave nothing with the cluster's label"
    return removal.step(where, "remove-labelled", title, lambda: _labelled(where))


def _labelled(where: Location) -> Left:
    """Return the cluster's objects, except RayClusters and what they own.

    Kubernetes removes an owned object together with its owner. Secrets are read
    by name: the right to list them would be the right to read every Secret of
    the namespace.
    """
    kube = where.kube
    name = where.name
    namespace = where.namespace
    known = (
        (SECRET, naming.token_secret(name)),
        (SECRET, naming.pull_secret(name)),
        (SECRET, naming.verify_secret(name)),
        (CLAIM, naming.claim(name)),
    )
    existing = side_by_side(lambda each: kube.get(*each, namespace=namespace), known)
    pods = kube.list(POD, namespace=namespace, labels=naming.of_cluster(name))

    left = [(POD, pod) for pod in pods]
    for (kind, _), found in zip(known, existing, strict=True):
        if found:
            left.append((kind, found))
    return [(kind, found) for kind, found in left if is_ours(found, name) and not owners(found)]
