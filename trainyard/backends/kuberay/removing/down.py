"""The steps that remove everything of a cluster from Kubernetes, and prove it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from trainyard.backends import wording
from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import site
from trainyard.backends.kuberay.removing import belongings, stuck
from trainyard.backends.kuberay.removing.belongings import Sort
from trainyard.backends.kuberay.removing.purge import purge_steps
from trainyard.backends.kuberay.site import Site
from trainyard.seams.kube.types import RAY_CLUSTER, Object
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Stage, Step, no


def down_steps(spec: ClusterSpec, tools: Tools, *, purge: bool) -> list[Stage]:
    """Return the steps that remove the cluster, whatever its file says by now: what is recorded and labelled counts."""
    return [Stage(f"Find cluster {spec.name}", lambda: _steps(spec, tools, purge=purge))]


def steps_of(there: Site, state: Path) -> list[Step]:
    """Return the steps that remove what belongs to the cluster at this site, and our own directory of it."""
    everything = belongings.everything(there)
    return [
        _ray_cluster(there),
        *(_of_sort(there, sort, found) for sort, found in everything.items() if found),
        _rest(there),
        Step(
            "Remove what was written down",
            done=lambda: no(f"still there: {state}") if state.exists() else YES,
            do=lambda: shutil.rmtree(state, ignore_errors=True),
        ),
    ]


def _steps(spec: ClusterSpec, tools: Tools, *, purge: bool) -> list[Step]:
    there = site.find(spec, tools)
    besides = purge_steps(spec, tools, there) if purge else []
    *removing, forget = steps_of(there, tools.state)
    # What is written down goes last: a purge that was killed must find its way again.
    return [_place(there, site.moved(spec, tools)), *removing, *besides, forget]


def _place(there: Site, moved: str) -> Step:
    """Return the step that only says where it all is: a file may have been changed since."""
    title = f"Find cluster {there.name} in {site.place(there)}" + ", not where its file now says" * bool(moved)
    return Step(title, done=lambda: Answer(True, moved), do=_nothing)


def _ray_cluster(there: Site) -> Step:
    """Return the step that removes the RayCluster: Kubernetes then removes what KubeRay made for it."""
    if belongings.foreign_uid(there):
        title = f"Leave the RayCluster {there.name} alone: Trainyard did not make it"
        return Step(title, done=lambda: YES, do=_nothing)

    def found() -> list[Object]:
        one = belongings.own_ray_cluster(there)
        return [] if one is None else [one]

    def remove() -> None:
        for one in found():
            # By its uid: one that is made anew meanwhile is another one.
            there.kube.delete(RAY_CLUSTER, there.name, namespace=there.namespace, uid=one["metadata"]["uid"])
        stuck.wait(there, RAY_CLUSTER, found)

    title = f"Remove the RayCluster {there.name}" if found() else "Leave no RayCluster"
    return Step(title, done=lambda: _none(found()), do=remove, disruptive=True)


def _of_sort(there: Site, sort: Sort, now: Sequence[Object]) -> Step:
    """Return the step after which nothing of a kind belongs to the cluster; its title says what there was."""
    title = f"Remove {wording.counted(len(now), sort.noun)}: {wording.named([one['metadata']['name'] for one in now])}"
    done = partial(belongings.of_sort, there, sort)
    return Step(title, done=lambda: _none(done()), do=lambda: _remove(there, sort))


def _rest(there: Site) -> Step:
    """Return the step that proves it; what was made since, by KubeRay or by hand, goes too."""

    def left() -> list[Object]:
        return [one for found in belongings.everything(there).values() for one in found]

    def remove() -> None:
        for sort in belongings.SORTS:
            _remove(there, sort)

    return Step("Leave nothing else with the cluster's label", done=lambda: _none(left()), do=remove)


def _remove(there: Site, sort: Sort) -> None:
    for one in belongings.of_sort(there, sort):
        if belongings.is_labelled(one, there.name):
            there.kube.delete(sort.kind, one["metadata"]["name"], namespace=there.namespace)
    stuck.wait(there, sort.kind, lambda: belongings.of_sort(there, sort))


def _none(left: Sequence[Object]) -> Answer:
    return no(f"still there: {wording.named([one['metadata']['name'] for one in left])}") if left else YES


def _nothing() -> None:
    """Change nothing: it is somebody else's."""
