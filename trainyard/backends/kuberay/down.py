"""The steps that remove everything of a cluster from Kubernetes, and prove it."""

from __future__ import annotations

import shutil
from functools import partial

from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import naming, purge, removal
from trainyard.backends.kuberay.location import Location, is_ours, owners
from trainyard.backends.kuberay.removal import Left
from trainyard.backends.kuberay.snapshot import if_allowed, side_by_side
from trainyard.seams.kube import types as kinds
from trainyard.seams.kube.types import Kind, Object
from trainyard.steps import YES, Step, no, nothing

# What we make.
OURS = (kinds.POD, kinds.SECRET, kinds.CLAIM)
# What KubeRay makes beside pods and goes with its RayCluster; not everybody may ask for it.
KUBERAYS = (kinds.SERVICE, kinds.CONFIG_MAP, kinds.SERVICE_ACCOUNT, kinds.ROLE, kinds.ROLE_BINDING)


def steps(where: Location, tools: Tools, *, with_purge: bool) -> list[Step]:
    """Return the steps that remove what belongs to the cluster at this location, and our own directory of it."""
    # Refuses before anything is removed.
    besides = purge.steps(where, tools) if with_purge else []
    # Last of all: a command that was killed must find its way again.
    record = Step(
        "Remove what was written down",
        done=lambda: no(f"still there: {tools.state}") if tools.state.exists() else YES,
        do=lambda: shutil.rmtree(tools.state, ignore_errors=True),
    )
    return [_ray_cluster_step(where), _rest_step(where), *besides, record]


def _ray_cluster_step(where: Location) -> Step:
    """Return the step that removes the RayCluster: Kubernetes then removes what KubeRay made for it."""
    if _foreign_uid(where):
        title = f"Leave the RayCluster {where.name} alone: Trainyard did not make it"
        return Step(title, done=lambda: YES, do=nothing)

    def left() -> Left:
        live = where.kube.get(kinds.RAY_CLUSTER, where.name, namespace=where.namespace)
        return [(kinds.RAY_CLUSTER, live)] if live is not None and is_ours(live, where.name) else []

    return removal.step(where, f"Remove the RayCluster {where.name} in {where}", left, disruptive=True)


def _rest_step(where: Location) -> Step:
    """Return the step after which nothing belongs to the cluster; we delete what carries our label."""

    def remove() -> None:
        removal.delete(where, [(kind, found) for kind, found in belonging(where) if is_ours(found, where.name)])

    now = belonging(where)
    title = f"Remove what belongs to it: {removal.names(now)}" if now else "Leave nothing with the cluster's label"
    return removal.step(where, title, lambda: belonging(where), remove)


def belonging(where: Location) -> Left:
    """Return the cluster's objects: what carries our label, and what KubeRay made for its RayCluster.

    A RayCluster of the same name that is somebody else's has its own; and who copies our RayCluster copies our label.
    """
    foreign = _foreign_uid(where)
    every = side_by_side(lambda kind: [(kind, found) for found in _labelled(where, kind)], (*OURS, *KUBERAYS))
    return [(kind, found) for of_kind in every for kind, found in of_kind if _is_own(found, where.name, foreign)]


def _labelled(where: Location, kind: Kind) -> list[Object]:
    every: dict[str, Object] = {}
    for labels in (naming.of_cluster(where.name), naming.of_ray_cluster(where.name)):
        ask = partial(where.kube.list, kind, namespace=where.namespace, labels=labels)
        listed = ask() if kind in OURS else if_allowed(ask)
        every |= {found["metadata"]["name"]: found for found in listed or ()}
    return [found for _, found in sorted(every.items())]


def _is_own(found: Object, name: str, foreign: str | None) -> bool:
    belongs = owners(found)
    return any(owner == name and uid != foreign for owner, uid in belongs) if belongs else is_ours(found, name)


def _foreign_uid(where: Location) -> str | None:
    live = where.kube.get(kinds.RAY_CLUSTER, where.name, namespace=where.namespace)
    return None if live is None or is_ours(live, where.name) else str(live["metadata"]["uid"])
