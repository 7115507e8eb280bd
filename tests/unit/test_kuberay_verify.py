"""`image.verify` on Kubernetes: the hosts that are asked, by pods that leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.fake_kube import FakeKube, location, named
from tests.unit.kube_pods import condition, waiting
from trainyard import versions
from trainyard.backends.contract import HostResult
from trainyard.backends.kuberay.pods import Ended
from trainyard.backends.kuberay.verify import hosts_of, login, probe, result, run, verified
from trainyard.errors import OutsideError, PrerequisiteError, TrainyardError
from trainyard.images.resolve import PinnedImage
from trainyard.seams.kube.types import NODE, POD, SECRET, Object
from trainyard.seams.registry.auth import Login
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import Clock

IMAGE = PinnedImage("mine", "reg:5000/mine@sha256:1", "sha256:1")
RAY = f"ray {versions.RAY}"


def spec(**more: Any) -> ClusterSpec:
    return ClusterSpec.model_validate({"name": "lab", "backend": "kuberay", **more})


def node(name: str, **labels: str) -> Object:
    return {"metadata": {"name": name, "labels": labels}}


def test_every_host_is_tried_that_has_the_labels_of_some_group() -> None:
    kube = FakeKube((NODE, node("b")), (NODE, node("a", pool="x")))
    groups: dict[str, Any] = {
        "groups": {"gpu": {"node_selector": {"pool": "y"}}},
        "node_selector": {"pool": "x"},
    }
    assert hosts_of(location(kube), spec(), ["head"]) == ["a", "b"]
    with_gpus = spec(workers=[{"name": "gpu"}])
    assert hosts_of(location(kube, **groups), with_gpus, ["head", "gpu"]) == ["a"]
    with pytest.raises(
        PrerequisiteError, match="no Kubernetes node has the labels that cluster lab asks for"
    ):
        hosts_of(location(kube, node_selector={"pool": "z"}), spec(), ["head"])
    assert hosts_of(location(FakeKube(forbidden=["nodes"])), spec(), ["head"]) == [None]


class Time:
    """A clock that advances while the code waits; `then` happens at each wait."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        self.now = 0.0
        self.then = then

    def clock(self) -> Clock:
        return Clock(lambda: self.now, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        self.then()


def tried(kube: FakeKube, time: Time, *hosts: str) -> list[HostResult]:
    where = location(kube)
    return run(
        where,
        IMAGE,
        {host: probe(where, spec(), IMAGE, (), host) for host in hosts},
        clock=time.clock(),
    )


def with_status(*statuses: Object) -> FakeKube:
    """Return a Kubernetes that gives each new pod the next status; running pods are on host `a`."""
    kube, left = (
        FakeKube((NODE, {**node("a"), "status": {"conditions": [condition("Ready", "True")]}})),
        [*statuses],
    )

    def give(made: Object) -> None:
        made["status"] = left.pop(0)
        if "containerStatuses" in made["status"]:
            made["spec"]["nodeName"] = "a"

    kube.after_create = give
    return kube


def ended(code: int, output: str) -> Object:
    state = {
        "terminated": {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "message": output,
        }
    }
    return {"containerStatuses": [{"name": "probe", "image": "x", "state": state}]}


def test_a_pod_that_ends_and_one_that_cannot_both_leave_nothing() -> None:
    refused = waiting(
        "ErrImagePull", "dial tcp 192.0.2.9:5000: connect: connection refused", name="probe"
    )
    kube = with_status(
        ended(0, f"{versions.RAY}\n"), {"phase": "Pending", "containerStatuses": [refused]}
    )
    left = probe(location(kube), spec(), IMAGE, (), "a")
    left["metadata"]["namespace"] = "team"
    kube.put(POD, left)
    kube.put(POD, named("lab-head", cluster="lab", ray="lab"))
    good, bad = tried(kube, Time(), "a", "b")
    assert good == HostResult("a", IMAGE.reference, 0.5, RAY)
    assert isinstance(bad.error, OutsideError)
    assert bad.error.what.startswith("the pod on b cannot pull the image ")
    assert kube.names(POD) == {"lab-head"}


def test_a_host_that_takes_no_pod_for_some_seconds_is_named_and_no_failure() -> None:
    text = "0/1 nodes are available: 1 Insufficient cpu."
    full = {
        "phase": "Pending",
        "conditions": [condition("PodScheduled", "False", reason="Unschedulable", message=text)],
    }
    time = Time()
    results = tried(with_status(ended(0, versions.RAY), full), time, "a", "b")
    assert time.now >= 5.0
    found = verified(results, replace(IMAGE, remark="by its tag"))
    assert [host.host for host in found.hosts] == ["a"]
    assert found.remark == "by its tag; not tried, because they take no pod of this cluster now: b"
    with pytest.raises(PrerequisiteError, match="the pod on b found no room"):
        verified(results[1:], IMAGE)


def test_a_pod_removed_while_it_runs_is_reported() -> None:
    kube = with_status({"phase": "Running"})
    (found,) = tried(kube, Time(kube.objects.clear), "a")
    assert str(found.error) == (
        "a: its pod was removed while it ran\n"
        "  -> Another user gave the same command, or the node was drained: repeat the command."
    )


def test_the_pod_is_tied_to_its_host_and_asks_for_next_to_nothing() -> None:
    where = location(FakeKube(), security={"restricted": True, "run_as_user": 1000})
    found = probe(where, spec(), IMAGE, ["lab.pull"], "a")["spec"]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    assert found["affinity"] == {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
    }

    (container,) = found["containers"]
    assert container["imagePullPolicy"] == "Always"
    assert container["resources"] == {
        "limits": {"cpu": "2", "memory": "4Gi"},
        "requests": {"cpu": "10m", "memory": "16Mi"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container["env"]
    assert found["imagePullSecrets"] == [{"name": "lab.pull"}]


@pytest.mark.parametrize(
    ("end", "lines"),
    [
        (
            Ended("Completed", 0, "2.9.0", ""),
            [
                f"image mine does not run on a as a Ray {versions.RAY} node: it has Ray 2.9.0",
                "  at reg:5000/mine@sha256:1",
                "  -> See what is wrong with it: trainyard image.lint",
            ],
        ),
        (
            Ended("Error", 1, "Traceback\nModuleNotFoundError: No module named 'ray'", ""),
            [
                f"image mine does not run on a as a Ray {versions.RAY} node",
                "  at python: exit code 1; ModuleNotFoundError: No module named 'ray'",
                "  -> See what is wrong with it: trainyard image.lint",
            ],
        ),
        (OutsideError("a cannot pull the image"), ["a cannot pull the image"]),
    ],
)
def test_a_host_that_did_not_run_it_says_why(end: Ended | TrainyardError, lines: list[str]) -> None:
    found = result(end, "a", IMAGE, 2.0)
    assert found.error is not None
    assert (found.error.lines(), found.result) == (lines, found.error.what)


def test_a_login_is_verify_s_own_and_the_clusters_stays() -> None:
    kube = FakeKube((SECRET, named("lab.pull", cluster="lab")))
    image = replace(IMAGE, login=Login("ops", "secret", "docker login"))
    with login(location(kube, pull_secrets=["other"]), image) as found:
        assert found == ("lab.verify", "other")
        assert kube.names(SECRET) == {"lab.pull", "lab.verify"}
        assert (
            kube.objects[("secrets", "team", "lab.verify")]["metadata"]["labels"][
                "io.trainyard/cluster"
            ]
            == "lab"
        )

    assert kube.names(SECRET) == {"lab.pull"}
    with login(location(kube), IMAGE) as found:
        assert (found, kube.names(SECRET)) == ((), {"lab.pull"})
