"""cluster.up waits while there is hope, names the reason, and ends with the cause otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.unit.fake_kube import FakeDashboard, FakeKube, location
from tests.unit.kube_pods import (
    Object,
    condition,
    event,
    group,
    head,
    pod,
    ray_cluster,
    running,
    waiting,
)
from trainyard.backends.kuberay import wait
from trainyard.backends.kuberay.debounce import MINUTE, SOON, STILL, Debounce
from trainyard.diagnosis import Diagnosis
from trainyard.errors import NotReadyError, OutsideError, PrerequisiteError, TrainyardError
from trainyard.seams.kube.errors import ApiUnreachableError
from trainyard.seams.kube.types import EVENT, NODE, POD, RAY_CLUSTER, Kind
from trainyard.seams.ray_api import RefusedError, UnreachableError
from trainyard.steps import Answer, no

READY = (
    condition("HeadPodReady", "True", reason="HeadPodRunningAndReady"),
    condition("RayClusterProvisioned", "True", reason="AllPodRunningAndReadyFirstTime"),
)
WORKER = "lab-gpu-worker-x7k2p"
DOWN = waiting("ImagePullBackOff", "x: not found", name="wait-gcs-ready")


class MoodyKube(FakeKube):
    """A Kubernetes that may be away."""

    away = False

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
        if self.away:
            raise ApiUnreachableError("the Kubernetes API does not answer")
        return super().get(kind, name, namespace)


@dataclass
class Yard:
    """A cluster that is waited for: what Kubernetes has, and what Ray says."""

    kube: MoodyKube = field(default_factory=MoodyKube)
    ray: FakeDashboard = field(default_factory=FakeDashboard)
    wait_for_machines: float | None = None
    seconds: float = 0.0

    def __post_init__(self) -> None:
        for name in ("kube-1", "kube-2"):
            self.put(
                NODE,
                {
                    "metadata": {"name": name},
                    "status": {"conditions": [condition("Ready", "True")]},
                },
            )
        where = location(self.kube, wait_for_machines=self.wait_for_machines)
        self.waiting = wait.Waiting(where, self.ray, now=lambda: self.seconds)  # type: ignore[arg-type]

    def put(self, kind: Kind, *objects: Object) -> None:
        for each in objects:
            each["metadata"].setdefault("namespace", "team")
            each["metadata"].setdefault("name", each["metadata"].get("uid"))
            self.kube.put(kind, each)

    def after(self, seconds: float) -> Answer:
        self.seconds += seconds
        return self.waiting.done()


@pytest.fixture
def yard() -> Yard:
    return Yard()


def test_all_are_ready_when_kubernetes_kuberay_and_ray_say_so(yard: Yard) -> None:
    assert yard.after(0) == no("there is no RayCluster")
    yard.put(RAY_CLUSTER, ray_cluster(group("gpu", 1), conditions=READY))
    assert yard.after(1) == no("head, gpu-?1: no pod")
    yard.put(POD, head(), pod(WORKER))
    assert yard.after(1) == no("gpu-x7k2p: is being made")
    yard.put(POD, pod(WORKER, ready=True))
    yard.ray.nodes = ("head",)
    assert yard.after(1) == no("Ray does not know gpu-x7k2p yet")
    yard.ray.nodes = ("head", "gpu-x7k2p")
    assert yard.after(1).holds


def test_kuberay_has_to_have_seen_that_the_head_is_ready(yard: Yard) -> None:
    yard.put(RAY_CLUSTER, ray_cluster(group("gpu", 1)))
    yard.put(POD, head(), pod(WORKER, ready=True))
    yard.ray.nodes = ("head", "gpu-x7k2p")
    assert yard.after(0) == no("KubeRay has not seen yet that the head is ready")


def broken(yard: Yard) -> None:
    yard.put(RAY_CLUSTER, ray_cluster(group("gpu", 1)))
    yard.put(POD, head(), pod(WORKER, init=(DOWN,)))


def test_a_plan_reports_a_cause_and_cluster_up_fails_with_it(yard: Yard) -> None:
    broken(yard)
    for _ in range(3):
        assert yard.after(60).detail.startswith("gpu-x7k2p: cannot pull its image: ")

    yard.waiting.begin()
    broken(yard)

    with pytest.raises(OutsideError) as caught:
        yard.after(0)

    assert caught.value.what.endswith("registry 192.0.2.10:5000 does not hold that image")
    assert (
        caught.value.where == "cluster lab, namespace team of context lab, on kube-2: x: not found"
    )
    assert [str(each) for each in caught.value.problems] == [
        "what was made stays: to remove it: trainyard cluster.down"
    ]


def test_a_second_cause_is_named_with_the_first(yard: Yard) -> None:
    small = condition(
        "PodScheduled", "False", reason="Unschedulable", message="0/2 nodes are available: 2 x."
    )
    pulls = waiting("ErrImagePull", "x: not found", name="wait-gcs-ready")
    yard.put(RAY_CLUSTER, ray_cluster(group("gpu", 1)))
    yard.put(POD, pod("lab-head-h1", group="head", host="", conditions=(small,)))
    yard.waiting.begin()
    yard.put(POD, pod(WORKER, init=(pulls,)))
    assert not yard.after(0).holds

    with pytest.raises(PrerequisiteError) as both:
        yard.after(SOON)

    assert both.value.what.startswith("head found no room for 2 cpu, 4Gi memory: ")
    (second, stays) = both.value.problems
    assert second.where == "seen as well"
    assert second.message.startswith("gpu-x7k2p cannot pull the image 192.0.2.10:5000/")
    assert stays.where == "what was made stays"


def test_an_unplaced_pod_fails_cluster_up_only_after_its_tolerance(yard: Yard) -> None:
    refused = condition(
        "PodScheduled",
        "False",
        reason="Unschedulable",
        message="0/1 nodes are available: 1 Insufficient cpu.",
    )

    yard.put(RAY_CLUSTER, ray_cluster(group("gpu", 1)))
    yard.put(POD, head(), pod(WORKER, host="", conditions=(refused,)))
    yard.waiting.begin()
    assert not yard.after(0).holds
    assert not yard.after(SOON - 1).holds
    yard.put(POD, pod(WORKER, host=""))
    assert yard.after(1) == no("gpu-x7k2p: waits for a Kubernetes node")
    yard.put(POD, pod(WORKER, host="", conditions=(refused,)))
    assert not yard.after(1).holds

    with pytest.raises(PrerequisiteError):
        yard.after(SOON)


def test_pods_that_back_off_are_deleted_at_once_for_a_retry(yard: Yard) -> None:
    broken(yard)
    crashed = pod(
        "lab-gpu-worker-abc12", containers=(waiting("CrashLoopBackOff", "back-off 5m0s"),)
    )
    beside = pod(
        "lab-gpu-worker-def34", containers=(running(), waiting("CrashLoopBackOff", name="sidecar"))
    )
    yard.put(POD, crashed, beside)
    yard.waiting.begin()
    assert sorted(yard.kube.deleted) == ["Pod lab-gpu-worker-abc12", "Pod lab-gpu-worker-x7k2p"]
    (cluster,) = yard.kube.list(RAY_CLUSTER)
    assert wait.TRIED_AGAIN in cluster["metadata"]["annotations"]
    assert yard.after(1) == no("gpu-def34: starts Ray")


def all_ready(yard: Yard, *conditions: Object) -> None:
    yard.put(RAY_CLUSTER, ray_cluster(group("gpu", 1), conditions=(*READY, *conditions)))
    yard.put(POD, head(), pod(WORKER, ready=True))
    yard.waiting.begin()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UnreachableError("no answer: refused"), NotReadyError),
        (RefusedError("it refused our token"), OutsideError),
    ],
)
def test_a_dashboard_that_stays_silent_or_refuses_us_is_not_ready(
    error: OutsideError, kind: type[TrainyardError], yard: Yard
) -> None:
    # An old refusal of Kubernetes may still stand in the status.
    all_ready(
        yard,
        condition(
            "ReplicaFailure", "True", reason="FailedCreateWorkerPod", message="exceeded quota: q"
        ),
    )

    yard.ray.error = error
    assert yard.after(0) == no("waiting for the dashboard")
    assert not yard.after(MINUTE - 1).holds

    with pytest.raises(
        kind, match="is ready for Kubernetes, and its dashboard does not answer"
    ) as caught:
        yard.after(1)

    assert error.what in (caught.value.where or "")


def test_an_api_server_that_is_started_again_is_waited_for(yard: Yard) -> None:
    all_ready(yard)
    yard.kube.away = True
    assert yard.after(MINUTE) == no("the Kubernetes API does not answer")
    with pytest.raises(ApiUnreachableError):
        yard.after(1)


@pytest.mark.parametrize(("machines", "seconds"), [(None, STILL), (900.0, 900.0)])
def test_when_nothing_changes_for_long_that_is_said(machines: float | None, seconds: float) -> None:
    yard = Yard(wait_for_machines=machines)
    yard.put(RAY_CLUSTER, ray_cluster())
    yard.put(POD, head(ready=False, phase="Running", containers=(running("ray-head"),)))
    yard.waiting.begin()
    assert yard.after(0) == no("head: starts Ray")
    assert not yard.after(seconds - 1).holds
    with pytest.raises(
        NotReadyError, match=f"nothing has changed for {seconds:.0f} s: head: starts Ray"
    ):
        yard.after(1)


def test_a_long_pull_is_progress(yard: Yard) -> None:
    pulls = head(ready=False)
    yard.put(RAY_CLUSTER, ray_cluster())
    yard.put(POD, pulls)
    yard.put(EVENT, event(pulls, "Pulling", "Pulling image", kind="Normal"))
    yard.waiting.begin()
    for _ in range(5):
        assert yard.after(STILL - 50) == no("head: pulls the image")


def test_a_cluster_that_is_removed_while_it_comes_up_ends_the_waiting(yard: Yard) -> None:
    all_ready(yard)
    leaving = ray_cluster(group("gpu", 1))
    leaving["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    yard.put(RAY_CLUSTER, leaving)
    with pytest.raises(NotReadyError, match="cluster lab was removed while it came up"):
        yard.after(1)
    yard.kube.delete(RAY_CLUSTER, "lab", namespace="team")
    with pytest.raises(NotReadyError, match="cluster lab was removed while it came up"):
        yard.after(1)


def test_a_cause_that_returns_gets_its_full_tolerance_again() -> None:
    seconds = 0.0
    debounce = Debounce(now=lambda: seconds)
    first, second = (Diagnosis("is slow", nodes=(name,), tolerates=5) for name in "ab")
    assert debounce.expired([first]) is None
    seconds = 4
    assert debounce.expired([]) is None
    seconds = 6
    assert debounce.expired([first, second]) is None
    seconds = 11
    expired = debounce.expired([first, second])
    assert expired
    assert expired.sentence() == "a, b is slow"


def test_each_node_has_its_own_tolerance() -> None:
    seconds = 0.0
    debounce = Debounce(now=lambda: seconds)
    first, second = (Diagnosis("is slow", nodes=(name,), tolerates=5) for name in "ab")
    assert debounce.expired([first]) is None
    seconds = 4
    assert debounce.expired([second]) is None
    seconds = 6
    assert debounce.expired([second]) is None
    seconds = 9
    assert debounce.expired([second])
