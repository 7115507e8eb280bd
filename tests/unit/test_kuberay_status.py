"""Questions and answers of cluster.status, connect and cluster.logs on Kubernetes."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from trainyard_runner.wire.plan import ExpectedNode

from tests.unit.fake_kube import FakeDashboard, FakeKube, location
from tests.unit.kube_pods import (
    IMAGE,
    Object,
    condition,
    ended,
    group,
    head,
    pod,
    ray_cluster,
    running,
    waiting,
)
from trainyard.backends.contract import ClusterStatus, LogLine, NodeStatus, Site
from trainyard.backends.kuberay import groups, nodes
from trainyard.backends.kuberay.snapshot import Snapshot
from trainyard.backends.kuberay.status import connect, logs, status
from trainyard.endpoint import Endpoint
from trainyard.errors import NotReadyError
from trainyard.seams.kube.types import NODE, POD, RAY_CLUSTER, SECRET
from trainyard.seams.ray_api import UnreachableError
from trainyard.spec.cluster import ClusterSpec

WORKER, OTHER = "lab-gpu-worker-x7k2p", "lab-gpu-worker-abc12"
TOKEN = "t" * 64
HERE = "http://127.0.0.1:4242"
PLACE = "Kubernetes (namespace team of context lab)"


def cluster_file(
    workers: Sequence[dict[str, Any]] = ({"name": "gpu", "count": 1, "cpus": 2, "gpus": 1},),
) -> ClusterSpec:
    section = {"namespace": "team", "simulated_gpus": True}
    head_ = {"cpus": 1}
    file = {
        "name": "lab",
        "backend": "kuberay",
        "image": "r:5000/ray",
        "head": head_,
        "workers": list(workers),
        "kuberay": section,
    }
    return ClusterSpec.model_validate(file)


@dataclass
class Lab:
    """A Kubernetes with a Trainyard cluster, Ray's answers there, and the three questions."""

    directory: Path
    kube: FakeKube = field(default_factory=FakeKube)

    def __post_init__(self) -> None:
        self.kube.answers = lambda: True  # type: ignore[attr-defined]
        self.ray: Any = FakeDashboard(location=location(self.kube))
        for name in ("kube-1", "kube-2"):
            self.has_host(name, "True")

    def has_host(self, name: str, ready: str) -> None:
        self.kube.put(
            NODE,
            {"metadata": {"name": name}, "status": {"conditions": [condition("Ready", ready)]}},
        )

    def made(self, *pods: Object, cluster: Object | None = None) -> None:
        self.kube.put(RAY_CLUSTER, cluster or ray_cluster(group("gpu", 1)))
        for each in pods:
            self.kube.put(POD, each)
        data = {"auth_token": base64.b64encode(TOKEN.encode()).decode()}
        self.kube.put(SECRET, {"metadata": {"name": "lab", "namespace": "team"}, "data": data})

    def status(self, spec: ClusterSpec | None = None) -> ClusterStatus:
        site = Site(self.directory / "state", {}, "kuberay", directory=self.directory)
        return status(spec or cluster_file(), site, self.ray)

    def connect(self) -> Endpoint:
        return connect(cluster_file(), self.ray)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_a_cluster_that_is_up_says_where_and_how_to_get_its_token(lab: Lab) -> None:
    lab.made(head(), pod(WORKER, ready=True))
    lab.ray.nodes = ("head", "gpu-x7k2p")
    now = lab.status()

    assert (now.state, now.detail, now.differences, now.address, now.tunnel) == (
        "up",
        "",
        (),
        HERE,
        PLACE,
    )

    assert now.token_command == (
        "kubectl --context lab --namespace team get secret lab -o 'jsonpath={.data.auth_token}' "
        "| base64 -d"
    )
    assert TOKEN not in repr(now)


def test_a_cluster_that_was_never_made_is_absent(lab: Lab) -> None:
    now = lab.status()
    assert (now.state, now.detail, now.address, now.token_command) == ("absent", "", None, None)
    assert now.nodes == (
        NodeStatus("head", "head", "", "absent", 1, 0, "no pod"),
        NodeStatus("gpu-?1", "gpu", "", "absent", 2, 1, "no pod"),
    )


def test_a_cluster_that_differs_from_its_file_says_so(lab: Lab) -> None:
    lab.made(head(), pod(WORKER, ready=True))
    lab.ray.nodes = ("head", "gpu-x7k2p")
    workers = [{"name": "gpu", "count": 2}, {"name": "cpu", "count": 1}]
    found = ("gpu: 1 node now, 2 nodes desired", "cpu: 0 nodes now, 1 node desired")
    assert lab.status(cluster_file(workers)).differences == found


def test_nodes_are_shown_without_dashboard_and_without_right_to_the_secret(lab: Lab) -> None:
    lab.made(head(), pod(WORKER, ready=True))
    lab.kube.forbidden.add("secrets")
    lab.ray.alive = lambda *_: (_ for _ in ()).throw(
        UnreachableError("no answer from Ray's dashboard: refused")
    )
    now = lab.status()
    assert (now.state, now.detail) == (
        "partial",
        "head, gpu-x7k2p: not yet in Ray; no answer from Ray's dashboard: refused",
    )
    assert ([node.state for node in now.nodes], now.token_command) == (
        ["starting", "starting"],
        None,
    )


def test_a_node_that_ray_calls_alive_is_up_whatever_kubernetes_says(lab: Lab) -> None:
    lab.made(
        head(),
        pod(WORKER, phase="Running", containers=(running(restarts=1, last=ended("Error", 1)),)),
    )
    lab.ray.nodes = ("head", "gpu-x7k2p")
    assert (lab.status().state, lab.status().detail) == ("up", "")
    lab.has_host("kube-2", "Unknown")
    for alive, state in ((("head", "gpu-x7k2p"), "up"), (("head",), "broken")):
        lab.ray.nodes = alive
        now = lab.status()
        assert [node.state for node in now.nodes] == ["up", state]
        assert now.detail == "gpu-x7k2p: Kubernetes calls its node kube-2 not ready"


def test_one_cause_is_said_once(lab: Lab) -> None:
    pulls = waiting("ImagePullBackOff", "x: not found", name="wait-gcs-ready")
    lab.made(
        head(),
        pod(WORKER, init=(pulls,)),
        pod(OTHER, init=(pulls,)),
        cluster=ray_cluster(group("gpu", 2)),
    )
    lab.ray.nodes = ("head",)
    now = lab.status(cluster_file([{"name": "gpu", "count": 2}]))
    assert now.detail == (
        "gpu-abc12, gpu-x7k2p: cannot pull its image: registry 192.0.2.10:5000 does not hold "
        "that image"
    )


def test_a_head_that_is_broken_has_no_address(lab: Lab) -> None:
    crashed = waiting("CrashLoopBackOff", name="ray-head", restarts=4, last=ended("Error", 127))
    lab.made(head(ready=False, phase="Running", containers=(crashed,)), pod(WORKER, ready=True))
    lab.ray.alive = lambda *_: (_ for _ in ()).throw(UnreachableError("nobody listens"))
    now = lab.status()
    assert now.detail == (
        "head: ended with exit code 127, Kubernetes starts it again and again; gpu-x7k2p: not "
        "yet in Ray; "
        "nobody listens"
    )
    assert (now.nodes[0].state, now.address, now.tunnel) == ("broken", None, None)


def test_a_run_gets_its_endpoint_expected_nodes_and_token_problem(lab: Lab) -> None:
    lab.made(head(), pod(WORKER, host=""))
    endpoint = lab.connect()
    assert (endpoint.address, endpoint.token, endpoint.image, endpoint.tunnel) == (
        HERE,
        TOKEN,
        IMAGE,
        PLACE,
    )

    assert [node.name for node in endpoint.expected or ()] == ["head", "gpu-x7k2p"]
    assert endpoint.down == (("gpu-x7k2p", "waits for a Kubernetes node"),)
    assert endpoint.simulated_gpus is False

    assert endpoint.refused == (
        "Secret lab in namespace team of context lab holds another token than the nodes were "
        "started with: it was "
        "changed, or deleted and made again. docs/tokens.md says how to restore the nodes' token; "
        "or give all nodes the new one, which ends all that runs: trainyard cluster.up --recreate."
    )


MAKES = ": waits for the KubeRay operator"
PULLS = waiting("ImagePullBackOff", "x: not found", name="ray-head")


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ((), f"{MAKES}; head, gpu-?1: no pod"),
        ((head(leaving=True),), f"{MAKES}; head: is being removed; gpu-?1: no pod"),
        (
            (pod("lab-head-abcde", group="head", containers=(PULLS,)),),
            (
                f"{MAKES}; head: cannot pull its image: registry 192.0.2.10:5000 does not hold that "
                "image; gpu-?1: no pod"
            ),
        ),
    ],
)
def test_without_a_head_that_runs_there_is_no_endpoint(
    pods: tuple[Object, ...], why: str, lab: Lab
) -> None:
    lab.made(*pods)
    with pytest.raises(NotReadyError) as caught:
        lab.connect()
    assert caught.value.lines() == [
        f"cluster lab is not up{why}",
        "  -> Make it: trainyard cluster.up",
    ]
    if not pods:
        with pytest.raises(NotReadyError, match="cluster lab is not up"):
            logs(lab.ray, follow=False)


def observed(*pods: Object, cluster: Object | None = None) -> Snapshot:
    return Snapshot(FakeKube(forbidden=["nodes"]), "team", pods, cluster)  # type: ignore[arg-type]


def states(spec: ClusterSpec, snapshot: Snapshot, *alive: str) -> list[tuple[str, str, str]]:
    every = nodes.statuses(
        groups.of_file(spec, snapshot.owner).values(), snapshot, frozenset(alive)
    )
    return [(node.name, node.state, node.detail) for node in every]


def promised(snapshot: Snapshot) -> list[ExpectedNode]:
    made = groups.of_cluster(snapshot.owner).values()
    return list(nodes.expected(made, nodes.statuses(made, snapshot, frozenset())))


def test_a_node_says_why_it_is_not_up() -> None:
    pods = (
        head(),
        pod(WORKER, ready=True),
        pod("lab-gpu-worker-a", init=(running("wait-gcs-ready"),)),
        pod("lab-gpu-worker-b", ready=True, leaving=True),
    )

    snapshot = observed(*pods, cluster=ray_cluster(group("gpu", 4)))
    assert states(cluster_file([{"name": "gpu", "count": 4}]), snapshot, "head") == [
        ("head", "up", ""),
        ("gpu-x7k2p", "starting", "not yet in Ray"),
        ("gpu-a", "starting", "waits for the head, which is ready"),
        ("gpu-b", "broken", "is being removed"),
        ("gpu-?4", "absent", "no pod"),
    ]


def test_a_node_beyond_the_file_is_surplus_unless_ray_added_it() -> None:
    pods = (head(), pod(WORKER, ready=True), pod(OTHER, ready=True))
    alive = ("head", "gpu-x7k2p", "gpu-abc12")
    fixed = observed(*pods, cluster=ray_cluster(group("gpu", 2)))
    assert [state for _, state, _ in states(cluster_file(), fixed, *alive)] == [
        "up",
        "up",
        "surplus",
    ]
    grows = observed(*pods, cluster=ray_cluster(group("gpu", 1, 3)))
    growing = cluster_file([{"name": "gpu", "min": 1, "max": 3}])
    assert [state for _, state, _ in states(growing, grows, *alive)] == ["up", "up", "up"]


def test_a_run_is_promised_what_exists_and_what_ray_may_add() -> None:
    cluster = ray_cluster(group("gpu", 1, 3))
    assert promised(observed(head(), pod(WORKER, ready=True), cluster=cluster)) == [
        ExpectedNode("head", "head", 1, 0, 2**31),
        ExpectedNode("gpu-x7k2p", "gpu", 2, 1, 2**32),
        ExpectedNode("gpu-?2", "gpu", 2, 1, 2**32, optional=True),
        ExpectedNode("gpu-?3", "gpu", 2, 1, 2**32, optional=True),
    ]

    more = promised(
        observed(head(), pod(WORKER, ready=True), pod(OTHER, ready=True), cluster=cluster)
    )

    assert [(node.name, node.optional) for node in more] == [
        ("head", False),
        ("gpu-x7k2p", True),
        ("gpu-abc12", True),
        ("gpu-?3", True),
    ]


def test_nodes_known_not_to_run_are_named_before_a_run_waits_for_them(lab: Lab) -> None:
    text = "0/1 nodes are available: 1 Too many pods."
    refused = condition("PodScheduled", "False", reason="Unschedulable", message=text)
    lab.made(
        head(),
        pod(WORKER, host="", conditions=(refused,)),
        pod(OTHER, ready=True),
        pod("lab-gpu-worker-a", phase="Running", containers=(running(),)),
        cluster=ray_cluster(group("gpu", 4)),
    )
    assert lab.connect().down == (
        ("gpu-x7k2p", f"found no room for 2 cpu, 4Gi memory: {text}"),
        ("gpu-?4", "no pod"),
    )


def test_a_node_that_is_being_deleted_beside_its_successor_is_not_promised(lab: Lab) -> None:
    leaving, successor = pod(WORKER, ready=True, leaving=True), pod(OTHER, ready=True)
    both = promised(observed(head(), leaving, successor, cluster=ray_cluster(group("gpu", 1))))
    assert [node.name for node in both] == ["head", "gpu-abc12"]
    lab.made(head(), leaving)
    assert lab.connect().down == (("gpu-x7k2p", "is being removed"),)


class PrintingKube(FakeKube):
    """A Kubernetes with one log: a line a second; the former run's under True."""

    def __init__(self, texts: Mapping[bool, Sequence[str]]) -> None:
        super().__init__()
        self.printing = texts

    def logs(self, pod: str, *, namespace: str, container: str, **more: Any) -> str:
        return "\n".join(self.printing[more["previous"]][-more["lines"] :])


def followed(
    monkeypatch: pytest.MonkeyPatch, kube: FakeKube, *happens: Callable[[], object]
) -> Iterator[LogLine]:
    """Return the lines while one thing after the other happens, and then the cluster goes."""
    left = [*happens, kube.objects.clear]
    silent: Any = FakeDashboard(error=UnreachableError("no Ray"), location=location(kube))

    def sleep(_: float) -> None:
        left.pop(0)()

    monkeypatch.setattr(time, "sleep", sleep)
    return logs(silent, follow=True)


def test_logs_have_what_containers_printed_also_in_the_run_that_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = {True: ["first run", "it broke"], False: ["second run"]}
    kube = PrintingKube(texts)
    kube.put(
        POD, pod(WORKER, phase="Running", containers=(running(restarts=1, last=ended("Error", 1)),))
    )
    assert list(
        followed(monkeypatch, kube, lambda: texts[False].append("it runs"), lambda: None)
    ) == [
        LogLine("gpu-x7k2p", "former ray-worker", "first run"),
        LogLine("gpu-x7k2p", "former ray-worker", "it broke"),
        LogLine("gpu-x7k2p", "ray-worker", "second run"),
        LogLine("gpu-x7k2p", "ray-worker", "it runs"),
    ]
