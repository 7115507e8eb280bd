"""Which pod is the head, and what a log says that cannot be read."""

from __future__ import annotations

from typing import Any

from tests.unit.fake_kube import FakeKube
from tests.unit.kube_pods import head, pod
from trainyard.backends.kuberay import snapshot
from trainyard.backends.kuberay.snapshot import Snapshot
from trainyard.errors import OutsideError
from trainyard.seams.kube.types import Object

WORKER = "lab-gpu-worker-x7k2p"


def of_pods(kube: FakeKube, *pods: Object) -> Snapshot:
    return snapshot.of_pods(kube, "team", pods)  # type: ignore[arg-type]


def test_a_head_that_is_being_deleted_is_none_beside_another() -> None:
    old, new = head(leaving=True), pod("lab-head-h2", group="head", host="kube-2", ready=True)
    assert of_pods(FakeKube(), old, new).head == new
    assert of_pods(FakeKube(), old).head == old


def test_a_log_that_cannot_be_read_hides_nothing() -> None:
    kube: Any = FakeKube()
    kube.logs = lambda *_, **more: (_ for _ in ()).throw(OutsideError("no log"))
    assert (
        of_pods(kube, pod(WORKER)).log(pod(WORKER), "x", former=False)
        == "(its log cannot be read: no log)"
    )
