"""`image.verify` on Kubernetes: which nodes are asked, and what their answers mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.fake_kube import FakeKube, location, named
from trainyard import versions
from trainyard.backends.kuberay.probe_pods import Outcome
from trainyard.backends.kuberay.verify import hosts_of, login, result
from trainyard.errors import OutsideError, PrerequisiteError, RequestError
from trainyard.images.types import PinnedImage
from trainyard.seams.kube.types import NODE, POD, SECRET, Object
from trainyard.seams.registry.auth import Login
from trainyard.spec.cluster import ClusterSpec

IMAGE = PinnedImage("mine", "reg:5000/mine@sha256:1", "sha256:1")


def spec(**more: Any) -> ClusterSpec:
    return ClusterSpec.model_validate({"name": "lab", "backend": "kuberay", **more})


def node(name: str, *, taint: str = "", cordoned: bool = False, gpus: int = 0, **labels: str) -> Object:
    taints = [{"key": taint, "effect": "NoSchedule"}] if taint else []
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": conditions}
    made = {"taints": taints, "unschedulable": cordoned}
    return {"metadata": {"name": name, "labels": labels}, "spec": made, "status": status}


def tried(kube: FakeKube, **more: Any) -> list[str | None]:
    return [host for host, _ in hosts_of(location(kube, **more.get("kuberay", {})), spec(**more)).found]


def test_every_node_is_tried_that_some_group_may_run_on() -> None:
    kube = FakeKube(
        *[(NODE, one) for one in (node("a"), node("b", taint="nvidia.com/gpu", gpus=1), node("c", taint="x"))]
    )
    assert tried(kube) == ["a"]
    assert tried(kube, workers=[{"name": "gpu", "gpus": 1}]) == ["a", "b"]
    assert tried(kube, workers=[{"name": "gpu", "gpus": 2}]) == ["a"]
    assert tried(kube, workers=[{"name": "gpu", "gpus": 2}], kuberay={"tolerations": [{"key": "x"}]}) == ["a", "c"]


def test_selectors_of_groups_leave_nodes_out() -> None:
    kube = FakeKube((NODE, node("a", pool="x")), (NODE, node("b")))
    assert tried(kube, kuberay={"node_selector": {"pool": "x"}}) == ["a"]


def test_a_node_that_takes_no_pods_now_is_named() -> None:
    kube = FakeKube((NODE, node("a")), (NODE, node("b", cordoned=True)))
    found = hosts_of(location(kube), spec())
    assert ([host for host, _ in found.found], found.remark) == (["a"], "not tried: b (cordoned)")


def test_a_cluster_that_could_run_nowhere_is_told_why() -> None:
    kube = FakeKube((NODE, node("a", taint="x")), (NODE, node("b", cordoned=True)))
    with pytest.raises(PrerequisiteError) as caught:
        hosts_of(location(kube), spec())
    assert caught.value.lines() == [
        "no Kubernetes node could run cluster lab",
        "  at a: taint x:NoSchedule is not tolerated; b: cordoned",
        "  -> See node_selector and tolerations under `kuberay:` in the cluster file, and kubectl describe nodes.",
    ]


def test_who_may_not_list_nodes_tries_those_of_the_clusters_own_pods() -> None:
    kube = FakeKube(forbidden=["nodes"])
    for name, host in (("lab-head", "b"), ("lab-w-1", "a"), ("lab-w-2", "a"), ("lab-w-3", "")):
        kube.put(POD, {**named(name, ray="lab", cluster="lab"), "spec": {"nodeName": host}})
    found = hosts_of(location(kube), spec())
    assert [host for host, _ in found.found] == ["a", "b"]
    assert found.remark == ("you may not list the Kubernetes nodes, so that only those were tried that run the cluster")


def test_who_sees_no_node_at_all_tries_one() -> None:
    found = hosts_of(location(FakeKube(forbidden=["nodes"])), spec())
    assert [host for host, _ in found.found] == [None]
    assert found.remark == "you may not list the Kubernetes nodes, so that only one was tried, of Kubernetes' choice"


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
