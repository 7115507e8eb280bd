"""`image.verify` on Kubernetes: which nodes are asked, and what their answers mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.fake_kube import FakeKube, location, named
from trainyard import versions
from trainyard.backends.kuberay.probe_pods import Outcome
from trainyard.backends.kuberay.verify import hosts_of, judged, login, result
from trainyard.errors import OutsideError, PrerequisiteError, RequestError
from trainyard.images.types import PinnedImage
from trainyard.seams.kube.types import NODE, SECRET, Object
from trainyard.seams.registry.auth import Login
from trainyard.spec.cluster import ClusterSpec

IMAGE = PinnedImage("mine", "reg:5000/mine@sha256:1", "sha256:1")


def spec(**more: Any) -> ClusterSpec:
    return ClusterSpec.model_validate({"name": "lab", "backend": "kuberay", **more})


def node(name: str, **labels: str) -> Object:
    return {"metadata": {"name": name, "labels": labels}}


def test_every_host_is_tried_that_has_the_labels_of_some_group() -> None:
    kube = FakeKube((NODE, node("b")), (NODE, node("a", pool="x")))
    groups: dict[str, Any] = {"groups": {"gpu": {"node_selector": {"pool": "y"}}}, "node_selector": {"pool": "x"}}
    assert hosts_of(location(kube), spec()) == ["a", "b"]
    assert hosts_of(location(kube, **groups), spec(workers=[{"name": "gpu"}])) == ["a"]
    with pytest.raises(PrerequisiteError, match="no Kubernetes node has the labels that cluster lab asks for"):
        hosts_of(location(kube, node_selector={"pool": "z"}), spec())


def test_who_may_not_list_hosts_tries_one() -> None:
    assert hosts_of(location(FakeKube(forbidden=["nodes"])), spec()) == [None]


def test_a_host_that_takes_no_pod_now_is_named_and_no_failure() -> None:
    ran = Outcome("a", "a", 2.0, 0, versions.RAY)
    full = Outcome("b", "", 5.0, error=PrerequisiteError("the pod on b found no room: 1 node(s) were unschedulable"))
    assert judged([ran, full]) == ([ran], "not tried, for they take no pod of this cluster now: b")
    with pytest.raises(PrerequisiteError, match="found no room"):
        judged([full])


def test_a_node_that_ran_the_image_says_which_ray_it_has() -> None:
    found = result(Outcome("a", "a", 2.0, 0, versions.RAY), IMAGE)
    assert (found.host, found.ok, found.result, found.reference) == ("a", True, f"ray {versions.RAY}", IMAGE.reference)


@pytest.mark.parametrize(
    ("outcome", "lines"),
    [
        (
            Outcome("the node", "b", 2.0, 0, "2.9.0"),
            [
                f"image mine does not run on b as a Ray {versions.RAY} node: it has Ray 2.9.0",
                "  at reg:5000/mine@sha256:1",
                "  -> See what is wrong with it: invoke image.lint",
            ],
        ),
        (
            Outcome("a", "a", 2.0, 1, "Traceback\nModuleNotFoundError: No module named 'ray'"),
            [
                f"image mine does not run on a as a Ray {versions.RAY} node",
                "  at python: exit code 1; ModuleNotFoundError: No module named 'ray'",
                "  -> See what is wrong with it: invoke image.lint",
            ],
        ),
        (Outcome("a", "", 2.0, error=OutsideError("a cannot have the image")), ["a cannot have the image"]),
    ],
)
def test_a_node_that_did_not_says_why(outcome: Outcome, lines: list[str]) -> None:
    found = result(outcome, IMAGE)
    assert found.error is not None
    assert found.error.lines() == lines


def test_a_login_is_verify_s_own_and_the_clusters_stays() -> None:
    kube = FakeKube((SECRET, named("lab.pull", cluster="lab")))
    image = replace(IMAGE, login=Login("ops", "secret", "docker login"))
    with login(location(kube, pull_secrets=["other"]), image) as found:
        assert found == ("lab.verify", "other")
        assert kube.names(SECRET) == {"lab.pull", "lab.verify"}
        assert kube.objects[("secrets", "team", "lab.verify")]["metadata"]["labels"]["io.trainyard/cluster"] == "lab"
    assert kube.names(SECRET) == {"lab.pull"}
    with login(location(kube), IMAGE) as found:
        assert (found, kube.names(SECRET)) == ((), {"lab.pull"})


def test_a_secret_of_somebody_else_keeps_its_content() -> None:
    kube = FakeKube((SECRET, named("lab.verify")))
    image = replace(IMAGE, login=Login("ops", "secret", "docker login"))
    with pytest.raises(RequestError), login(location(kube), image):
        pass
    assert (kube.changed, kube.names(SECRET)) == ([], {"lab.verify"})
