"""The steps that remove everything of a cluster from Kubernetes, and prove it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from trainyard.backends import wording
from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import finalizers, location, naming, purge
from trainyard.backends.kuberay.location import Location, is_ours, owners
from trainyard.backends.kuberay.snapshot import if_allowed, side_by_side
from trainyard.seams.kube import types as kinds
from trainyard.seams.kube.types import Kind, Object
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import KuberaySection
from trainyard.steps import YES, Answer, Step, no

# What we make, in the order in which it goes: a claim can only go when no pod uses it any more.
OURS = {kinds.POD: "pod", kinds.SECRET: "secret", kinds.CLAIM: "claim"}
# What KubeRay makes beside pods and goes with its RayCluster; not everybody may ask for it.
KUBERAYS = (kinds.SERVICE, kinds.CONFIG_MAP, kinds.SERVICE_ACCOUNT, kinds.ROLE, kinds.ROLE_BINDING)


def found_steps(spec: ClusterSpec, tools: Tools, section: KuberaySection, *, with_purge: bool) -> list[Step]:
    """Return the steps that remove the cluster, whatever its file says by now: what is recorded and labelled counts."""
    where = location.find(spec, tools, section)
    # Refuses before anything is removed.
    besides = purge.steps(where, tools) if with_purge else []
    moved = location.moved(tools, section)
    title = f"Find cluster {where.name} in {where}" + (", not where its file now says" if moved else "")
    return [Step(title, done=lambda: Answer(True, moved), do=lambda: None), *steps(where, tools.state, besides)]


def steps(where: Location, state: Path, besides: Sequence[Step] = ()) -> list[Step]:
    """Return the steps that remove what belongs to the cluster at this location, and our own directory of it."""
    return [
        _ray_cluster_step(where),
        *(_kind_step(where, kind) for kind in OURS),
        _rest_step(where),
        *besides,
        # Last of all: a command that was killed must find its way again.
        Step(
            "Remove what was written down",
            done=lambda: no(f"still there: {state}") if state.exists() else YES,
            do=lambda: shutil.rmtree(state, ignore_errors=True),
        ),
    ]


def _ray_cluster_step(where: Location) -> Step:
    """Return the step that removes the RayCluster: Kubernetes then removes what KubeRay made for it."""
    if _foreign_uid(where):
        title = f"Leave the RayCluster {where.name} alone: Trainyard did not make it"
        return Step(title, done=lambda: YES, do=lambda: None)

    def left() -> list[Object]:
        found = where.kube.get(kinds.RAY_CLUSTER, where.name, namespace=where.namespace)
        return [found] if found is not None and is_ours(found, where.name) else []

    title = f"Remove the RayCluster {where.name}"
    return finalizers.removal(where, kinds.RAY_CLUSTER, title, left, disruptive=True)


def _kind_step(where: Location, kind: Kind) -> Step:
    """Return the step after which nothing of a kind belongs to the cluster; we delete what carries our label."""
    now = belonging(where, kind)
    title = f"Remove {wording.counted(len(now), OURS[kind])}" if now else f"Leave no {OURS[kind]}"
    listed = f": {wording.named([each['metadata']['name'] for each in now])}" if now else ""
    return Step(f"{title}{listed}", lambda: finalizers.gone(belonging(where, kind)), lambda: _remove(where, kind))


def _rest_step(where: Location) -> Step:
    """Return the step that proves it; what was made since, by KubeRay or by hand, goes too."""

    def left() -> list[Object]:
        every = side_by_side(lambda kind: belonging(where, kind), (*OURS, *KUBERAYS))
        return [each for found in every for each in found]

    def remove() -> None:
        for kind in (*OURS, *KUBERAYS):
            _remove(where, kind)

    return Step("Leave nothing else with the cluster's label", lambda: finalizers.gone(left()), remove)


def belonging(where: Location, kind: Kind) -> list[Object]:
    """Return the cluster's objects of a kind: what carries our label, and what KubeRay made for its RayCluster.

    A RayCluster of the same name that is somebody else's has its own; and who copies our RayCluster copies our label.
    """
    found: dict[str, Object] = {}
    for labels in (naming.of_cluster(where.name), naming.of_ray_cluster(where.name)):
        reply = if_allowed(partial(where.kube.list, kind, namespace=where.namespace, labels=labels))
        if reply.refusal and kind in OURS:
            raise reply.refusal
        found |= {each["metadata"]["name"]: each for each in reply.found or ()}
    owned = [name for name, each in found.items() if owners(each)]
    foreign = _foreign_uid(where) if owned else None
    return [each for _, each in sorted(found.items()) if _is_own(each, where.name, foreign)]


def _is_own(found: Object, name: str, foreign: str | None) -> bool:
    belongs = owners(found)
    return any(owner == name and uid != foreign for owner, uid in belongs) if belongs else is_ours(found, name)


def _foreign_uid(where: Location) -> str | None:
    found = where.kube.get(kinds.RAY_CLUSTER, where.name, namespace=where.namespace)
    return None if found is None or is_ours(found, where.name) else str(found["metadata"]["uid"])


def _remove(where: Location, kind: Kind) -> None:
    for found in belonging(where, kind):
        if is_ours(found, where.name):
            where.kube.delete(kind, found["metadata"]["name"], namespace=where.namespace)
    finalizers.wait(where, kind, lambda: belonging(where, kind))
