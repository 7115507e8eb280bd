"""Removing a cluster from Kubernetes: all of it, nothing of others, and what hangs is named."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest

from tests.unit.fake_kube import FakeKube, location, named
from tests.unit.kube_pods import pod
from trainyard import steps
from trainyard.backends.kuberay import down, finalizers
from trainyard.backends.kuberay.location import Location
from trainyard.errors import LeftoverError, PrerequisiteError
from trainyard.progress import PlainProgress
from trainyard.seams.kube.types import CLAIM, NODE, POD, RAY_CLUSTER, ROLE, SECRET, SERVICE, Object
from trainyard.steps import Clock, Step


def made(name: str = "lab", *, ours: bool = True, kube: FakeKube | None = None) -> FakeKube:
    """Return a namespace with a cluster in it, as KubeRay makes one."""
    kube = kube or FakeKube()
    mark = name if ours else ""
    owner = kube.put(RAY_CLUSTER, named(name, cluster=mark))
    for one in (f"{name}-head-a", f"{name}-gpu-worker-b"):
        kube.put(POD, named(one, ray=name, owner=owner, cluster=mark))
    kube.put(SERVICE, named(f"{name}-head-svc", ray=name, owner=owner))
    kube.put(ROLE, named(name, ray=name, owner=owner))
    kube.put(SECRET, named(name, cluster=mark))
    return kube


def down_of(kube: FakeKube, tmp_path: Path) -> list[Step]:
    return down.steps(location(kube), tmp_path / "state")


def run(todo: list[Step]) -> list[str]:
    """Run steps; return the titles of those that changed something."""
    return [result.title for result in steps.run(todo, PlainProgress(StringIO(), now=lambda: 0.0)) if result.changed]


def test_everything_of_a_cluster_goes_and_the_second_time_there_is_nothing_to_do(tmp_path: Path) -> None:
    kube = made()
    (tmp_path / "state").mkdir()
    planned = [step.title for step in down_of(kube, tmp_path)]
    assert planned == [
        "Remove the RayCluster lab",
        "Remove 2 pods: lab-gpu-worker-b, lab-head-a",
        "Remove 1 secret: lab",
        "Leave no claim",
        "Leave nothing else with the cluster's label",
        "Remove what was written down",
    ]
    assert [step.title for step in down_of(kube, tmp_path) if step.disruptive] == planned[:1]
    run(down_of(kube, tmp_path))
    assert (kube.objects, (tmp_path / "state").exists()) == ({}, False)
    # What KubeRay made goes with its RayCluster, not by us.
    assert kube.deleted == ["RayCluster lab", "Secret lab"]
    assert run(down_of(kube, tmp_path)) == []


def test_a_half_made_cluster_is_removed_too(tmp_path: Path) -> None:
    kube = FakeKube((SECRET, named("lab", cluster="lab")), (CLAIM, named("lab-outputs", cluster="lab")))
    kube.put(POD, named("lab-verify-1", cluster="lab"))
    run(down_of(kube, tmp_path))
    assert kube.objects == {}


def test_a_raycluster_of_somebody_else_keeps_all_that_is_its(tmp_path: Path) -> None:
    kube = made(ours=False)
    before = dict(kube.objects)
    kube.put(SECRET, named("lab-pull", cluster="lab"))
    todo = down_of(kube, tmp_path)
    assert todo[0].title == "Leave the RayCluster lab alone: Trainyard did not make it"
    assert run(todo) == ["Remove 1 secret: lab-pull"]
    assert kube.objects == before


def test_another_cluster_in_the_same_namespace_is_not_touched(tmp_path: Path) -> None:
    kube = made("other")
    before = dict(kube.objects)
    run(down_of(made(kube=kube), tmp_path))
    assert kube.objects == before


def test_what_a_raycluster_left_that_is_gone_is_waited_for(tmp_path: Path) -> None:
    kube = made()
    del kube.objects[("rayclusters", "team", "lab")]
    todo = down_of(kube, tmp_path)
    assert todo[1].title == "Remove 2 pods: lab-gpu-worker-b, lab-head-a"


def test_what_is_made_meanwhile_goes_too(tmp_path: Path) -> None:
    kube = made()
    todo = down_of(kube, tmp_path)
    kube.put(CLAIM, named("lab-outputs", cluster="lab"))
    run(todo)
    assert kube.objects == {}


def test_kinds_that_we_may_not_ask_for_and_do_not_make_are_left_out(tmp_path: Path) -> None:
    kube = made()
    kube.forbidden = {"roles", "rolebindings", "serviceaccounts"}
    run(down_of(kube, tmp_path))
    assert kube.objects == {}


def test_a_kind_that_we_do_make_must_be_asked_for(tmp_path: Path) -> None:
    kube = made()
    kube.forbidden = {"pods"}
    with pytest.raises(PrerequisiteError):
        down_of(kube, tmp_path)


def hanging(kind: str, one: Object, kube: FakeKube) -> LeftoverError:
    """Wait for something that never goes; time passes at once."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    clock = Clock(lambda: now[0], sleep)
    with pytest.raises(LeftoverError) as caught:
        finalizers.wait(
            location(kube), {"RayCluster": RAY_CLUSTER, "Pod": POD, "Claim": CLAIM}[kind], lambda: [one], clock=clock
        )
    return caught.value


def test_a_finalizer_that_hangs_is_named_with_who_takes_it_away() -> None:
    one = named("lab")
    one["metadata"]["finalizers"] = ["ray.io/gcs-ft-redis-cleanup-finalizer"]
    assert hanging("RayCluster", one, FakeKube()).lines() == [
        "RayCluster lab is to be removed, and its finalizer ray.io/gcs-ft-redis-cleanup-finalizer holds it",
        "  at namespace team",
        "  -> The KubeRay operator takes it away once it has cleaned up Redis: does the operator run, and does Redis "
        "answer? If it is gone for good: kubectl --context lab -n team patch rayclusters.ray.io lab --type=merge -p "
        """'{"metadata":{"finalizers":null}}'; then repeat the same command.""",
    ]


def test_a_finalizer_that_nobody_knows_is_named_too() -> None:
    one = named("lab-outputs")
    one["metadata"]["finalizers"] = ["example.com/backup", "kubernetes.io/pvc-protection"]
    assert hanging("Claim", one, FakeKube()).lines()[0] == (
        "PersistentVolumeClaim lab-outputs is to be removed, and its finalizers example.com/backup, "
        "kubernetes.io/pvc-protection hold it"
    )


def test_a_pod_whose_host_is_not_ready_names_the_host_and_the_way_without_it() -> None:
    node = {"metadata": {"name": "b"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    found = pod("lab-gpu-worker-b", host="b", leaving=True)
    assert hanging("Pod", found, FakeKube((NODE, node))).lines() == [
        "Pod lab-gpu-worker-b is to be removed, and is on the Kubernetes node b, which Kubernetes calls not ready",
        "  at namespace team",
        "  -> Start that machine again, or, if it is off for good: kubectl --context lab -n team delete pod "
        "lab-gpu-worker-b --force --grace-period=0; then repeat the same command.",
    ]


@pytest.mark.parametrize("forbidden", [(), ("nodes",)])
def test_anything_else_is_to_be_looked_at(forbidden: tuple[str, ...]) -> None:
    node = {"metadata": {"name": "b"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    one = pod("lab-gpu-worker-b", host="b", leaving=True)
    kube = FakeKube((NODE, node), forbidden=forbidden)
    there: Location = location(kube)
    found = finalizers.leftover(there, POD, [one, named("lab-head-a")])
    assert found.lines() == [
        "Pod lab-gpu-worker-b is to be removed, and is still there",
        "  at namespace team: lab-gpu-worker-b, lab-head-a",
        "  -> Why: kubectl --context lab -n team describe pods lab-gpu-worker-b; then repeat the same command.",
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


def test_pods_with_our_label_that_belong_to_a_raycluster_of_somebody_else_stay(tmp_path: Path) -> None:
    kube = made(ours=False)
    for one in list(kube.objects.values()):
        if one["metadata"]["name"] == "lab-head-a":
            one["metadata"]["labels"]["io.trainyard/cluster"] = "lab"
    before = dict(kube.objects)
    run(down_of(kube, tmp_path))
    assert kube.objects == before
