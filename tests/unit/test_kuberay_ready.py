"""cluster.up waits as long as there is hope, says for what, and ends with the cause when there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fake_kube import FakeKube, site
from tests.unit.kube_pods import (
    LATER,
    STARTED,
    Object,
    condition,
    ended,
    event,
    group,
    head,
    pod,
    ray_cluster,
    running,
    stopped,
    waiting,
)
from trainyard.backends.kuberay import look, lost, ready, stale, way_in
from trainyard.backends.kuberay.causes import cause, cause_wait, progress
from trainyard.backends.kuberay.causes.facts import Cause, Facts
from trainyard.backends.kuberay.causes.patience import Patience
from trainyard.errors import NotReadyError, OutsideError, PrerequisiteError
from trainyard.seams.kube.errors import ForbiddenError, GoneError
from trainyard.seams.kube.types import EVENT, NODE, POD, RAY_CLUSTER, Kind, Ran
from trainyard.seams.ray_api import RefusedError, UnreachableError
from trainyard.spec import load_cluster
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import KuberaySection
from trainyard.steps import YES, Answer, no

READY = (
    condition("HeadPodReady", "True", reason="HeadPodRunningAndReady"),
    condition("RayClusterProvisioned", "True", reason="AllPodRunningAndReadyFirstTime"),
)
WORKER = "lab-gpu-worker-x7k2p"


@dataclass
class Clock:
    """Time that passes when the test says so."""

    seconds: float = 0.0

    def now(self) -> float:
        return self.seconds


@dataclass
class Yard:
    """A cluster that is waited for: what Kubernetes has, and what Ray says."""

    kube: FakeKube
    clock: Clock
    waiting: ready.Waiting
    alive: list[str] = field(default_factory=list)
    trouble: OutsideError | None = None

    def put(self, kind: Kind, *objects: Object) -> None:
        for one in objects:
            one["metadata"].setdefault("namespace", "team")
            one["metadata"].setdefault("name", one["metadata"]["uid"])
            self.kube.put(kind, one)

    def after(self, seconds: float) -> Answer:
        self.clock.seconds += seconds
        return self.waiting.done()


class PatchableKube(FakeKube):
    """Remembers what was patched."""

    def __init__(self) -> None:
        super().__init__()
        self.patched: list[Object] = []

    def patch(self, kind: Kind, name: str, merge: Object, *, namespace: str | None = None) -> Object:
        self.patched.append(merge)
        return merge


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Yard:
    file = tmp_path / "lab.yaml"
    file.write_text("{name: lab, backend: kuberay, image: 'r:5000/ray', workers: [{name: gpu, count: 1}]}")
    kube, clock = PatchableKube(), Clock()
    for name in ("kube-1", "kube-2"):
        kube.put(NODE, {"metadata": {"name": name}, "status": {"conditions": [condition("Ready", "True")]}})
    made = Yard(kube, clock, ready.Waiting(load_cluster(file).spec, site(kube), now=clock.now))

    def answer(*_: Any) -> frozenset[str]:
        if made.trouble:
            raise made.trouble
        return frozenset(made.alive)

    monkeypatch.setattr(way_in, "answer", answer)
    monkeypatch.setattr(way_in, "trouble", lambda *_: "")
    return made


def test_all_are_ready_when_kubernetes_kuberay_and_ray_say_so(yard: Yard) -> None:
    assert yard.after(0) == no("there is no RayCluster")
    yard.put(RAY_CLUSTER, ray_cluster(group("gpu", 1), conditions=READY, workers_ready=1))
    assert yard.after(1) == no("KubeRay makes the head, 1 node of gpu")
    yard.put(POD, head(), pod(WORKER))
    assert yard.after(1) == no("gpu-x7k2p is being made")
    yard.put(POD, pod(WORKER, ready=True))
    yard.alive = ["head"]
    assert yard.after(1) == no("Ray does not know gpu-x7k2p yet")
    yard.alive = ["head", "gpu-x7k2p"]
    assert yard.after(1).holds


@pytest.mark.parametrize(
    ("cluster", "seen"),
    [
        (
            ray_cluster(group("gpu", 1), conditions=READY, workers_ready=1, generation=2),
            "KubeRay looks at the change",
        ),
        (ray_cluster(group("gpu", 1), workers_ready=1), "KubeRay has not seen yet that the head is ready"),
        (ray_cluster(group("gpu", 1), conditions=READY), "KubeRay has not seen yet that all workers are ready"),
        (
            ray_cluster(group("gpu", 1), conditions=READY[:1], workers_ready=1),
            "KubeRay does not call the cluster provisioned yet",
        ),
    ],
)
def test_kuberay_has_to_agree(cluster: Object, seen: str, yard: Yard) -> None:
    yard.put(RAY_CLUSTER, cluster)
    yard.put(POD, head(), pod(WORKER, ready=True))
    yard.alive = ["head", "gpu-x7k2p"]
    assert yard.after(0) == no(seen)


def test_a_group_that_grows_is_ready_with_its_fewest_nodes(yard: Yard) -> None:
    cluster = ray_cluster(group("gpu", 1, 5, replicas=3), conditions=READY, workers_ready=1, autoscaling=True)
    yard.put(RAY_CLUSTER, cluster)
    yard.put(POD, head(), pod(WORKER, ready=True), pod("lab-gpu-worker-abc12"))
    yard.alive = ["head", "gpu-x7k2p"]
    assert yard.after(0).holds


def broken(yard: Yard) -> None:
    yard.put(RAY_CLUSTER, ray_cluster(group("gpu", 1)))
    yard.put(POD, head(), pod(WORKER, init=(waiting("ImagePullBackOff", "x: not found", name="wait-gcs-ready"),)))


def test_a_plan_only_says_what_is_wrong(yard: Yard) -> None:
    broken(yard)
    for _ in range(3):
        assert yard.after(60).detail.startswith("gpu-x7k2p cannot have the image")


def test_cluster_up_ends_with_the_cause(yard: Yard) -> None:
    yard.put(RAY_CLUSTER, ray_cluster(group("gpu", 1)))
    yard.waiting.begin()
    broken(yard)
    with pytest.raises(OutsideError) as caught:
        yard.after(0)
    assert caught.value.lines()[0].endswith("registry 192.0.2.10:5000 has no such image")
    assert caught.value.where == "cluster lab, namespace team of context lab, on kube-2: x: not found"


def test_what_may_pass_is_waited_for(yard: Yard) -> None:
    refused = condition(
        "PodScheduled", "False", reason="Unschedulable", message="0/1 nodes are available: 1 Insufficient cpu."
    )
    yard.put(RAY_CLUSTER, ray_cluster(group("gpu", 1)))
    yard.put(POD, head(), pod(WORKER, host="", conditions=(refused,)))
    yard.waiting.begin()
    assert not yard.after(0).holds
    assert not yard.after(4).holds
    yard.put(POD, pod(WORKER, host=""))
    assert yard.after(1) == no("gpu-x7k2p waits for a Kubernetes node")
    yard.put(POD, pod(WORKER, host="", conditions=(refused,)))
    assert not yard.after(1).holds
    with pytest.raises(PrerequisiteError):
        yard.after(5)


def test_the_operator_is_made_to_try_again_what_it_could_not_do(yard: Yard) -> None:
    said = 'FailedCreateHeadPod\npods "x" is forbidden: exceeded quota: q, requested: a=1, used: a=1, limited: a=1'
    refused = condition("ReplicaFailure", "True", reason="FailedCreateHeadPod", message=said)
    yard.put(RAY_CLUSTER, ray_cluster(conditions=(refused,)))
    yard.waiting.begin()
    (patched,) = yard.kube.patched  # type: ignore[attr-defined]
    assert list(patched["metadata"]["annotations"]) == ["io.trainyard/asked-again"]
    assert not yard.after(3).holds
    yard.put(RAY_CLUSTER, ray_cluster())
    assert yard.after(1) == no("KubeRay makes the head")


def test_a_pod_that_waits_to_be_tried_again_is_made_anew(yard: Yard) -> None:
    broken(yard)
    crashed = pod("lab-gpu-worker-abc12", containers=(waiting("CrashLoopBackOff", "back-off 5m0s"),))
    beside = pod("lab-gpu-worker-def34", containers=(running(), waiting("CrashLoopBackOff", name="sidecar")))
    failed = pod("lab-gpu-worker-aaa11", containers=(waiting("ErrImagePull", "connection refused"),))
    yard.put(POD, crashed, beside, failed)
    yard.waiting.begin()
    gone = ["Pod lab-gpu-worker-aaa11", "Pod lab-gpu-worker-abc12", "Pod lab-gpu-worker-x7k2p"]
    assert sorted(yard.kube.deleted) == gone
    assert yard.after(1) == no("gpu-def34 starts Ray")


def test_who_may_not_remove_pods_waits_until_they_are_tried_again(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise ForbiddenError("ops may not delete pods")

    broken(yard)
    monkeypatch.setattr(yard.kube, "delete", forbidden)
    yard.waiting.begin()
    with pytest.raises(OutsideError, match="cannot have the image"):
        yard.after(0)


def test_events_before_this_command_say_nothing_about_pods_that_are_replaced(yard: Yard) -> None:
    cluster = ray_cluster()
    old = [
        event(cluster, "DeletedHeadPod", "Deleted; Pod status: Failed; x", when=f"2026-01-02T03:0{n}:00Z")
        for n in (1, 2)
    ]
    yard.put(RAY_CLUSTER, cluster)
    yard.put(POD, head(ready=False))
    yard.put(EVENT, *old)
    yard.waiting.begin()
    assert not yard.after(0).holds
    yard.put(
        EVENT,
        *(
            event(cluster, "DeletedHeadPod", "Deleted; Pod status: Failed; x", when=f"2026-01-02T03:1{n}:00Z")
            for n in (1, 2)
        ),
    )
    with pytest.raises(OutsideError, match="failed 2 times"):
        yard.after(1)


def all_ready(yard: Yard) -> None:
    yard.put(RAY_CLUSTER, ray_cluster(group("gpu", 1), conditions=READY, workers_ready=1))
    yard.put(POD, head(), pod(WORKER, ready=True))
    yard.waiting.begin()


def test_a_head_that_wants_another_token_is_told_from_a_silent_one(yard: Yard) -> None:
    all_ready(yard)
    yard.trouble = RefusedError("the cluster refused our token: Forbidden")
    assert yard.after(0) == no("the head wants another token")
    with pytest.raises(OutsideError) as caught:
        yard.after(3)
    assert caught.value.lines() == [
        "head wants another token than the cluster's Secret has: it was changed or made anew while the head ran",
        "  at cluster lab, namespace team of context lab: the cluster refused our token: Forbidden",
        "  -> To give the one in Secret lab to every node, which ends all that runs: invoke cluster.up --recreate",
    ]


def test_ray_is_asked_also_while_an_old_refusal_of_kubernetes_still_stands_there(yard: Yard) -> None:
    all_ready(yard)
    stale = condition("ReplicaFailure", "True", reason="FailedCreateWorkerPod", message="exceeded quota: small")
    yard.put(RAY_CLUSTER, ray_cluster(group("gpu", 1), conditions=(*READY, stale), workers_ready=1))
    yard.trouble = RefusedError("the cluster refused our token: Forbidden")
    assert yard.after(0) == no("the head wants another token")
    yard.trouble, yard.alive = None, ["head", "gpu-x7k2p"]
    assert yard.after(0).holds


def test_a_dashboard_that_stays_silent_is_not_ready(yard: Yard) -> None:
    all_ready(yard)
    yard.trouble = UnreachableError("no answer from Ray's dashboard: refused")
    assert yard.after(0) == no("waiting for the dashboard")
    assert not yard.after(59).holds
    with pytest.raises(NotReadyError, match="is ready for Kubernetes, and its dashboard does not answer"):
        yard.after(1)


def test_an_api_server_that_is_started_again_is_waited_for(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    all_ready(yard)

    def gone(*_: Any, **__: Any) -> Any:
        raise GoneError("the Kubernetes API does not answer")

    monkeypatch.setattr(yard.kube, "get", gone)
    assert yard.after(60) == no("the Kubernetes API does not answer")
    with pytest.raises(GoneError):
        yard.after(30)


def test_when_nothing_changes_for_long_that_is_said(yard: Yard) -> None:
    yard.put(RAY_CLUSTER, ray_cluster())
    yard.put(POD, head(ready=False, phase="Running", containers=(running("ray-head"),)))
    yard.waiting.begin()
    assert yard.after(0) == no("head starts Ray")
    assert not yard.after(300).holds
    with pytest.raises(NotReadyError, match="nothing has changed for 300 s: head starts Ray"):
        yard.after(1)


def test_a_group_that_is_called_like_a_pull_is_none(yard: Yard) -> None:
    yard.put(RAY_CLUSTER, ray_cluster(group("puller", 1)))
    starts = pod("lab-puller-worker-a", group="puller", phase="Running", containers=(running("ray-worker"),))
    yard.put(POD, head(), starts)
    yard.waiting.begin()
    assert yard.after(0) == no("puller-a starts Ray")
    with pytest.raises(NotReadyError, match="nothing has changed for 300 s: puller-a starts Ray"):
        yard.after(301)


def test_machines_are_waited_for_as_long_as_the_file_says() -> None:
    patient = KuberaySection(wait_for_machines=7200.0)
    waiting = ready.step(ClusterSpec(name="lab", backend="kuberay", kuberay=patient), site(FakeKube()))
    assert waiting.deadline == ready.READY_SECONDS + 7200


def test_that_nothing_changed_is_said_with_how_long_it_was_borne() -> None:
    kube, clock = FakeKube(forbidden=["nodes"]), Clock()
    spec = ClusterSpec(name="lab", backend="kuberay", kuberay=KuberaySection(wait_for_machines=900.0))
    yard = Yard(kube, clock, ready.Waiting(spec, site(kube), now=clock.now))
    yard.put(RAY_CLUSTER, ray_cluster())
    yard.put(POD, head(ready=False, phase="Running", containers=(running("ray-head"),)))
    yard.waiting.begin()
    assert not yard.after(0).holds
    assert not yard.after(900).holds
    with pytest.raises(NotReadyError, match="nothing has changed for 900 s: head starts Ray"):
        yard.after(1)


def test_a_long_pull_is_progress(yard: Yard) -> None:
    one = head(ready=False)
    yard.put(RAY_CLUSTER, ray_cluster())
    yard.put(POD, one)
    yard.put(EVENT, event(one, "Pulling", "Pulling image", kind="Normal"))
    yard.waiting.begin()
    for _ in range(5):
        assert yard.after(250) == no("head pulls the image")


def test_progress_names_what_each_node_waits_for() -> None:
    first, second, third = pod(WORKER), pod("lab-gpu-worker-abc12"), pod("lab-gpu-worker-k2x9v", leaving=True)
    pulls = [event(one, "Pulling", "Pulling image", kind="Normal") for one in (first, second)]
    waits = pod("lab-cpu-worker-q1", group="cpu", init=(running("wait-gcs-ready"),))
    again = pod(
        "lab-cpu-worker-q2", group="cpu", phase="Running", containers=(running(restarts=1, last=ended("Error", 1)),)
    )
    facts = Facts(pods=(first, second, third, waits, again), events=tuple(pulls))
    assert progress.text(facts) == (
        "gpu-x7k2p, gpu-abc12 pull the image; gpu-k2x9v is being removed; cpu-q1 waits for the head; "
        "cpu-q2 ended and is started again"
    )


def test_a_worker_never_goes_back_to_being_made() -> None:
    init = stopped(ended("Completed", 0), name="wait-gcs-ready")
    moments = [
        pod("lab-cpu-worker-q1", group="cpu"),
        pod("lab-cpu-worker-q1", group="cpu", init=(running("wait-gcs-ready"),)),
        pod("lab-cpu-worker-q1", group="cpu", init=(init,)),
        pod("lab-cpu-worker-q1", group="cpu", init=(init,), containers=(running(),)),
    ]
    assert [progress.text(Facts(pods=(one,))).partition(" ")[2] for one in moments] == [
        "is being made",
        "waits for the head",
        "starts Ray",
        "starts Ray",
    ]


def test_patience_is_kept_for_each_node_and_begins_anew() -> None:
    clock = Clock()
    patience = Patience(now=clock.now)
    first, second = Cause("is slow", "slow", who=("a",), patience=5), Cause("is slow", "slow", who=("b",), patience=5)
    assert patience.over([first]) is None
    clock.seconds = 4
    assert patience.over([]) is None
    clock.seconds = 6
    assert patience.over([first, second]) is None
    clock.seconds = 11
    found = patience.over([first, second])
    assert found is not None
    assert cause.sentence(found) == "a, b is slow"


def test_workers_older_than_their_head_that_ray_does_not_know_are_lost() -> None:
    new = head(containers=(running("ray-head", since="2026-01-02T03:05:00Z", ready=True),))
    old, known = pod(WORKER, ready=True), pod("lab-gpu-worker-abc12", ready=True)
    young = pod("lab-gpu-worker-k2x9v", ready=True, containers=(running(since="2026-01-02T03:06:00Z", ready=True),))
    alive = frozenset({"head", "gpu-abc12"})
    assert stale.lost_workers([new, old, known, young], alive) == (old,)
    assert stale.lost_workers([new, old], None) == ()
    assert stale.lost_workers([head(), old], frozenset({"head"})) == ()


def test_a_cluster_that_is_removed_while_it_comes_up_ends_the_waiting(yard: Yard) -> None:
    all_ready(yard)
    yard.alive = ["head"]
    assert not yard.after(0).holds
    yard.kube.delete(RAY_CLUSTER, "lab", namespace="team")
    assert yard.after(1) == no("there is no RayCluster")
    yard.put(RAY_CLUSTER, ray_cluster(group("gpu", 1)))
    assert yard.after(10) == no("KubeRay has not seen yet that the head is ready")
    yard.put(RAY_CLUSTER, ray_cluster(group("gpu", 1)))
    yard.kube.objects[("rayclusters", "team", "lab")]["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert not yard.after(0).holds
    with pytest.raises(NotReadyError) as caught:
        yard.after(5)
    assert caught.value.lines() == [
        "cluster lab was removed while it came up",
        "  at namespace team of context lab",
        "  -> Somebody else gave cluster.down, or removed the RayCluster or its namespace. If it is to be there: "
        "invoke cluster.up",
    ]


def test_a_head_that_wants_another_token_is_said_also_before_old_workers_are_replaced(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = pod(WORKER, ready=True, containers=(running(since=STARTED, ready=True),))
    now = head(containers=(running("ray-head", since=LATER, ready=True),))
    yard.put(RAY_CLUSTER, ray_cluster(group("gpu", 1)))
    yard.put(POD, now, old)
    yard.trouble = RefusedError("the cluster refused our token: Forbidden")
    monkeypatch.setattr(lost, "Waiting", lambda *_: yard.waiting)
    first, second = lost.steps(yard.waiting._spec, site(yard.kube), [now, old], after=None)
    assert (first.done(), second.done()) == (no("the head wants another token"), YES)
    first.do()
    assert not first.done().holds
    yard.clock.seconds += 3
    with pytest.raises(OutsideError, match="head wants another token than the cluster's Secret has"):
        first.done()


def waits(*, resolves: Callable[[], bool]) -> Cause:
    return Cause("cannot get through", "", who=("a",), patience=30, is_hopeless=lambda: not resolves())


def test_a_name_that_stays_unknown_ends_the_waiting_early() -> None:
    clock = Clock()
    patience = Patience(now=clock.now)
    one = waits(resolves=lambda: False)
    for seconds, is_over in ((0, False), (7, False), (8, False), (11, False), (12, True)):
        clock.seconds = seconds
        assert (patience.over([one]) is not None) is is_over


def test_a_name_that_becomes_known_is_not_asked_for_again_and_waited_for_as_long_as_ever() -> None:
    clock = Clock()
    patience = Patience(now=clock.now)
    answers = [False, True]
    one = waits(resolves=lambda: answers.pop(0))
    for seconds in (0, 8, 12, 16, 29):
        clock.seconds = seconds
        assert patience.over([one]) is None
    clock.seconds = 30
    assert (patience.over([one]), answers) == (one, [])


@pytest.mark.parametrize(("code", "resolves"), [(0, True), (2, False), (124, False), (127, True)])
def test_whether_a_worker_finds_the_heads_address_is_asked_in_its_pod(code: int, resolves: bool) -> None:
    kube = FakeKube()
    kube.runs = lambda pod, command: Ran(code, "", "")
    facts = look.look(site(kube), ClusterSpec(name="lab", backend="kuberay")).facts
    one = pod(WORKER, init=(running("wait-gcs-ready"),))
    assert facts.resolves(one) is resolves
    found = cause_wait.cause(one, replace(facts, head=head()))
    assert found is not None
    assert found.is_hopeless is not None
    assert found.is_hopeless() is not resolves
