"""What is read about objects that do not run, and nothing about others."""

from __future__ import annotations

from typing import Any

from tests.unit.fake_kube import FakeKube
from tests.unit.kube_pods import event, head, pod
from trainyard.backends.kuberay import snapshot
from trainyard.backends.kuberay.snapshot import Snapshot
from trainyard.errors import OutsideError
from trainyard.seams.kube.types import EVENT, NODE, Kind, Object

WORKER = "lab-gpu-worker-x7k2p"


def backing_off(about: Object, minute: int) -> tuple[Kind, Object]:
    made = event(about, "BackOff", "x", when=f"2026-01-02T03:{minute:02}:00Z")
    made["metadata"] |= {"namespace": "team", "name": f"e-{minute}"}
    return EVENT, made


def of_pods(kube: FakeKube, *pods: Object) -> Snapshot:
    return snapshot.of_pods(kube, "team", pods)  # type: ignore[arg-type]


def test_events_are_the_oldest_first_and_none_where_they_may_not_be_seen() -> None:
    first, second = pod(WORKER), pod("lab-gpu-worker-abc12")
    kube = FakeKube(backing_off(first, 3), backing_off(second, 1), backing_off(first, 0))
    found = of_pods(kube, first, second)
    assert [each["metadata"]["name"] for each in found.events] == ["e-0", "e-1", "e-3"]
    assert [each["metadata"]["name"] for each in found.events_of(first)] == ["e-0", "e-3"]
    assert of_pods(FakeKube(forbidden=["events"]), first).events == ()


def test_hosts_are_those_of_pods_that_are_not_ready_and_none_where_they_may_not_be_seen() -> None:
    node = {"metadata": {"name": "kube-1"}}
    pods = (head(leaving=True), pod(WORKER), pod("unplaced", host=""), pod("ready", host="kube-9", ready=True))
    found = of_pods(FakeKube((NODE, node), (NODE, {"metadata": {"name": "kube-3"}})), *pods)
    assert {name: host and host["metadata"]["name"] for name, host in found.hosts.items()} == {
        "kube-1": "kube-1",
        "kube-2": None,
    }
    assert of_pods(FakeKube(forbidden=["nodes"]), *pods).hosts == {}


def test_a_head_that_is_being_deleted_is_none_beside_another() -> None:
    old, new = head(leaving=True), pod("lab-head-h2", group="head", host="kube-2", ready=True)
    assert of_pods(FakeKube(), old, new).head == new
    assert of_pods(FakeKube(), old).head == old


def test_a_log_that_cannot_be_read_hides_nothing() -> None:
    kube: Any = FakeKube()
    kube.logs = lambda *_, **more: (_ for _ in ()).throw(OutsideError("no log"))
    assert of_pods(kube, pod(WORKER)).log(pod(WORKER), "x", former=False) == "(its log cannot be read: no log)"
