"""What is read about objects that do not run, and nothing about others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.fake_kube import FakeKube
from tests.unit.kube_pods import condition, event, head, pod
from trainyard.backends.kuberay import beside
from trainyard.backends.kuberay.causes.facts import Host
from trainyard.errors import OutsideError
from trainyard.seams.kube.types import EVENT, LEASE, NODE, Kind, Object

WORKER = "lab-gpu-worker-x7k2p"


class Listener(FakeKube):
    """Remembers with which fields it was asked."""

    def __init__(self, *objects: tuple[Kind, Object], **more: Any) -> None:
        super().__init__(*objects, **more)
        self.asked: list[str] = []

    def list(self, kind: Kind, *, namespace: str | None = None, labels: str = "", fields: str = "") -> list[Object]:
        self.asked.append(fields)
        return super().list(kind, namespace=namespace, labels=labels, fields=fields)


def said(one: Object, minute: int) -> tuple[Kind, Object]:
    made = event(one, "BackOff", "x", when=f"2026-01-02T03:{minute:02}:00Z")
    made["metadata"] |= {"namespace": "team", "name": f"e-{minute}"}
    return EVENT, made


def test_events_are_those_of_the_objects_oldest_first() -> None:
    first, second, other = pod(WORKER), pod("lab-gpu-worker-abc12"), pod("theirs")
    kube = Listener(said(first, 3), said(second, 1), said(other, 2), said(first, 0))
    found = beside.events(kube, "team", [first, second])  # type: ignore[arg-type]
    assert [one["metadata"]["name"] for one in found] == ["e-0", "e-1", "e-3"]
    assert sorted(kube.asked) == [f"involvedObject.uid=uid-{one}" for one in ("lab-gpu-worker-abc12", WORKER)]


def test_for_many_objects_the_namespace_is_asked_once() -> None:
    every = [pod(f"lab-gpu-worker-{index}") for index in range(20)]
    kube = Listener(said(every[7], 1), said(pod("theirs"), 2))
    (found,) = beside.events(kube, "team", every)  # type: ignore[arg-type]
    assert found["metadata"]["name"] == "e-1"
    assert kube.asked == [""]


@pytest.mark.parametrize("count", [1, 20])
def test_events_that_may_not_be_seen_are_none(count: int) -> None:
    every = [pod(f"lab-gpu-worker-{index}") for index in range(count)]
    assert beside.events(FakeKube(forbidden=["events"]), "team", every) == ()  # type: ignore[arg-type]


def test_hosts_are_those_of_the_pods() -> None:
    kube = FakeKube((NODE, {"metadata": {"name": "kube-1"}}), (NODE, {"metadata": {"name": "kube-3"}}))
    found = beside.hosts(kube, [head(), pod(WORKER), pod("unplaced", host="")])  # type: ignore[arg-type]
    assert {name: one and one.node["metadata"]["name"] for name, one in found.items()} == {
        "kube-1": "kube-1",
        "kube-2": None,
    }
    assert beside.hosts(FakeKube(forbidden=["nodes"]), [head()]) == {}  # type: ignore[arg-type]


def test_leases_are_read_of_hosts_that_are_not_ready_where_they_may_be_seen() -> None:
    ready: Object = {"metadata": {"name": "kube-1"}, "status": {"conditions": [condition("Ready", "True")]}}
    silent: Object = {"metadata": {"name": "kube-2"}, "status": {"conditions": [condition("Ready", "Unknown")]}}
    leases: list[Object] = [
        {"metadata": {"name": name, "namespace": "kube-node-lease"}} for name in ("kube-1", "kube-2")
    ]
    for forbidden, lease in (((), leases[1]), (("leases",), None)):
        kube = FakeKube((NODE, ready), (NODE, silent), *[(LEASE, one) for one in leases], forbidden=forbidden)
        found = beside.hosts(kube, [head(), pod(WORKER)])  # type: ignore[arg-type]
        assert found == {"kube-1": Host(ready), "kube-2": Host(silent, lease)}


def test_pods_that_are_ready_need_no_explanation_unless_they_go() -> None:
    leaving = pod(WORKER, ready=True, leaving=True)
    waits = pod("lab-gpu-worker-abc12")
    assert beside.unready([head(), leaving, waits]) == [leaving, waits]


def test_a_log_that_cannot_be_read_hides_nothing() -> None:
    class Mute(FakeKube):
        def logs(self, pod: str, *, namespace: str, container: str, **more: Any) -> str:
            raise OutsideError("no log")

    found = beside.words(Mute(), pod(WORKER), "x", namespace="team", former=False, lines=5)  # type: ignore[arg-type]
    assert found == "(its log cannot be read: no log)"
