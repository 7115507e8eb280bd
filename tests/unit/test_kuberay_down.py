"""Removing a cluster from Kubernetes: all of it, nothing of others, and what hangs is named."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest

from tests.unit.fake_kube import FakeKube, location, named
from tests.unit.kube_pods import pod
from tests.unit.step_lists import refuse_lost_ids
from trainyard import steps
from trainyard.backends.contract import Site
from trainyard.backends.kuberay import down, removal
from trainyard.console.progress import PlainProgress
from trainyard.errors import LeftoverError, RequestError
from trainyard.seams.kube.errors import ForbiddenError
from trainyard.seams.kube.types import BUDGET, NODE, POD, RAY_CLUSTER, SECRET, Kind, Object
from trainyard.steps import Clock, Step


def made(name: str = "lab", *, ours: bool = True) -> FakeKube:
    """Return a namespace with a cluster in it, as KubeRay makes one."""
    kube = FakeKube()
    mark = name if ours else ""
    owner = kube.put(RAY_CLUSTER, named(name, cluster=mark))
    for one in (f"{name}-head-a", f"{name}-gpu-worker-b"):
        kube.put(POD, named(one, ray=name, owner=owner, cluster=mark))
    kube.put(SECRET, named(name, cluster=mark))
    return kube


def down_of(kube: FakeKube, tmp_path: Path, *, adopt: bool = False) -> list[Step]:
    site = Site(tmp_path / "state", {}, "kuberay").wishing(adopt=adopt)
    return down.steps(location(kube), site, with_purge=False)


def run(todo: list[Step]) -> list[str]:
    """Run steps; return the titles of those that changed something."""
    return [
        result.title
        for result in steps.run(todo, PlainProgress(StringIO(), now=lambda: 0.0))
        if result.changed
    ]


def test_everything_of_a_cluster_is_removed_and_the_second_down_is_idle(tmp_path: Path) -> None:
    kube = made()
    (tmp_path / "state").mkdir()
    refuse_lost_ids(down_of(kube, tmp_path))
    planned = [step.title for step in down_of(kube, tmp_path)]
    assert planned == [
        "Remove the RayCluster lab in namespace team of context lab",
        "Remove what belongs to the cluster: lab",
        "Remove the cluster's record",
    ]

    assert [step.title for step in down_of(kube, tmp_path) if step.disruptive] == planned[:1]
    run(down_of(kube, tmp_path))
    assert (kube.objects, (tmp_path / "state").exists()) == ({}, False)
    # Kubernetes removes KubeRay's objects with their RayCluster; Trainyard does not.
    assert kube.deleted == ["RayCluster lab", "Secret lab"]
    assert run(down_of(kube, tmp_path)) == []


def test_a_foreign_raycluster_keeps_its_objects(tmp_path: Path) -> None:
    kube = made(ours=False)
    before = dict(kube.objects)
    kube.put(SECRET, named("lab.pull", cluster="lab"))
    todo = down_of(kube, tmp_path)
    assert todo[0].title == "Leave the RayCluster lab alone: Trainyard did not make it"
    assert run(todo) == ["Remove what belongs to the cluster: lab.pull"]
    assert kube.objects == before


def hanging(kube: FakeKube, kind: Kind, *left: Object) -> list[str]:
    """Wait for something that never goes; time passes at once."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with pytest.raises(LeftoverError) as caught:
        removal.wait(
            location(kube),
            lambda: [(kind, one) for one in left],
            clock=Clock(lambda: now[0], sleep),
        )
    return caught.value.lines()


def test_a_pod_names_its_unready_host_and_the_way_without_it() -> None:
    node = {
        "metadata": {"name": "b"},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
    }
    found = pod("lab-gpu-worker-b", host="b", leaving=True)
    what, _, hint = hanging(FakeKube((NODE, node)), POD, found)
    assert what == (
        "Pod lab-gpu-worker-b is to be removed, and is on the Kubernetes node b, which "
        "Kubernetes calls not ready"
    )
    assert hint == (
        "  -> Start that machine again, or, if it is off for good: kubectl --context lab -n team "
        "delete pod "
        "lab-gpu-worker-b --force --grace-period=0; then repeat the same command."
    )


def test_a_raycluster_held_by_a_finalizer_reports_it_and_a_remedy() -> None:
    found = named("lab")
    found["metadata"]["finalizers"] = ["example.com/hold", "foregroundDeletion"]
    what, _, hint = hanging(FakeKube(), RAY_CLUSTER, found)
    assert what == "RayCluster lab is to be removed, and is held by its finalizer example.com/hold"
    assert hint == (
        "  -> Does the program that set the finalizer run? If it no longer exists: kubectl --context "
        "lab -n team patch "
        """rayclusters.ray.io lab --type=merge -p '{"metadata":{"finalizers":null}}'; then repeat the same command."""
    )


def test_anything_else_is_to_be_looked_at() -> None:
    found = pod("lab-gpu-worker-b", host="b", leaving=True)
    assert hanging(FakeKube(forbidden=["nodes"]), POD, found, named("lab-head-a")) == [
        "Pod lab-gpu-worker-b is to be removed, and is still there",
        "  at namespace team of context lab: lab-gpu-worker-b, lab-head-a",
        (
            "  -> Why: kubectl --context lab -n team describe pods lab-gpu-worker-b; then repeat the "
            "same command."
        ),
    ]


def test_a_copy_of_our_raycluster_under_another_name_keeps_its_pods(tmp_path: Path) -> None:
    kube = made()
    copy = kube.put(RAY_CLUSTER, named("lab2", cluster="lab"))
    for one in (
        named("lab2-head-a", ray="lab2", cluster="lab", owner=copy),
        named("lab2-gpu-b", cluster="lab", owner=copy),
    ):
        kube.put(POD, one)
    run(down_of(kube, tmp_path))
    assert (kube.names(RAY_CLUSTER), kube.names(POD)) == ({"lab2"}, {"lab2-head-a", "lab2-gpu-b"})
    assert run(down_of(kube, tmp_path)) == []


def test_labelled_pods_that_belong_to_another_user_s_raycluster_stay(tmp_path: Path) -> None:
    kube = made(ours=False)
    for one in list(kube.objects.values()):
        if one["metadata"]["name"] == "lab-head-a":
            one["metadata"]["labels"]["io.trainyard/cluster"] = "lab"
    before = dict(kube.objects)
    run(down_of(kube, tmp_path))
    assert kube.objects == before


def test_a_foreign_cluster_is_removed_only_with_adopt(tmp_path: Path) -> None:
    kube = made()
    live = kube.objects[(RAY_CLUSTER.plural, "team", "lab")]
    live["metadata"]["annotations"] = {"io.trainyard/owner": "alice@laptop"}
    before = dict(kube.objects)

    with pytest.raises(RequestError) as error:
        run(down_of(kube, tmp_path))

    assert error.value.lines() == [
        "cluster lab belongs to alice@laptop",
        "  at you are bob@lab",
        "  -> Ask them, or rename your cluster (`name:` in its file). If it is yours on another "
        "machine: export "
        "TRAINYARD_OWNER=alice@laptop. To take it over: trainyard cluster.down --adopt",
    ]

    assert kube.objects == before
    run(down_of(kube, tmp_path, adopt=True))
    assert kube.objects == {}


def test_down_without_all_delete_rights_is_refused(tmp_path: Path) -> None:
    kube = made()
    kube.lacking = ("delete secrets", "delete persistentvolumeclaims")
    with pytest.raises(ForbiddenError) as error:
        down_of(kube, tmp_path)
    assert [str(problem) for problem in error.value.problems] == [
        "secrets: delete",
        "persistentvolumeclaims: delete",
    ]


def test_down_waits_for_objects_that_the_raycluster_owns(tmp_path: Path) -> None:
    kube = made()
    owner = kube.objects[(RAY_CLUSTER.plural, "team", "lab")]
    kube.put(BUDGET, named("lab-nodes", cluster="lab", owner=owner))
    assert down_of(kube, tmp_path)[0].done().detail == (
        "still there: lab-gpu-worker-b, lab-head-a, lab and 1 more"
    )
