"""What is read about objects that do not run, and nothing about others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.fake_kube import FakeKube
from tests.unit.kube_pods import event, head, pod
from trainyard.backends.kuberay import snapshot
from trainyard.backends.kuberay.snapshot import Snapshot
from trainyard.errors import OutsideError
from trainyard.seams.kube.types import EVENT, NODE, Kind, Object

WORKER = "lab-gpu-worker-x7k2p"


class Listener(FakeKube):
    """Remembers with which fields it was asked, and reads no log."""

    def __init__(self, *objects: tuple[Kind, Object], **more: Any) -> None:
        super().__init__(*objects, **more)
        self.asked: list[str] = []

    def list(self, kind: Kind, *, namespace: str | None = None, labels: str = "", fields: str = "") -> list[Object]:
        self.asked.append(fields)
        return super().list(kind, namespace=namespace, labels=labels, fields=fields)

    def logs(self, pod: str, *, namespace: str, container: str, **more: Any) -> str:
        raise OutsideError("no log")


def backing_off(about: Object, minute: int) -> tuple[Kind, Object]:
    made = event(about, "BackOff", "x", when=f"2026-01-02T03:{minute:02}:00Z")
    made["metadata"] |= {"namespace": "team", "name": f"e-{minute}"}
    return EVENT, made


def of_pods(kube: FakeKube, *pods: Object) -> Snapshot:
    return snapshot.of_pods(kube, "team", pods)  # type: ignore[arg-type]


def test_events_are_those_of_the_pods_that_are_not_ready_oldest_first() -> None:
    first, second, other = pod(WORKER), pod("lab-gpu-worker-abc12"), pod("theirs")
    kube = Listener(backing_off(first, 3), backing_off(second, 1), backing_off(other, 2), backing_off(first, 0))
    found = of_pods(kube, head(), first, second)
    assert [each["metadata"]["name"] for each in found.events] == ["e-0", "e-1", "e-3"]
    assert [each["metadata"]["name"] for each in found.events_of(first)] == ["e-0", "e-3"]
    assert sorted(kube.asked) == [f"involvedObject.uid=uid-{name}" for name in ("lab-gpu-worker-abc12", WORKER)]


def test_for_many_objects_the_namespace_is_asked_once() -> None:
    every = [pod(f"lab-gpu-worker-{index}") for index in range(20)]
    kube = Listener(backing_off(every[7], 1), backing_off(pod("theirs"), 2))
    (found,) = of_pods(kube, *every).events
    assert (found["metadata"]["name"], kube.asked) == ("e-1", [""])


@pytest.mark.parametrize("count", [1, 20])
def test_events_that_may_not_be_seen_are_none(count: int) -> None:
    every = [pod(f"lab-gpu-worker-{index}") for index in range(count)]
    assert of_pods(FakeKube(forbidden=["events"]), *every).events == ()


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
    assert of_pods(Listener(), pod(WORKER)).log(pod(WORKER), "x") == "(its log cannot be read: no log)"
