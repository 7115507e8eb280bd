"""What cluster.status says about each node, and what a run is promised."""

from __future__ import annotations

from pathlib import Path

from tests.unit.kube_pods import Object, condition, group, head, pod, ray_cluster, running, waiting
from trainyard.backends.contract import NodeStatus
from trainyard.backends.kuberay import view
from trainyard.backends.kuberay.causes.facts import Facts
from trainyard.backends.kuberay.look import Look
from trainyard.endpoint import ExpectedNode
from trainyard.spec import load_cluster
from trainyard.spec.cluster import ClusterSpec

WORKER, OTHER = "lab-gpu-worker-x7k2p", "lab-gpu-worker-abc12"


def spec(tmp_path: Path, workers: str) -> ClusterSpec:
    file = tmp_path / "lab.yaml"
    file.write_text(f"{{name: lab, backend: kuberay, image: 'r:5000/ray', workers: [{workers}]}}")
    return load_cluster(file).spec


def look(*pods: Object, cluster: Object | None = None) -> Look:
    first = next((one for one in pods if one["metadata"]["labels"]["ray.io/node-type"] == "head"), None)
    return Look(cluster, pods, Facts(pods=pods, owner=cluster, head=first))


def node(name: str, state: str, seen: str = "", *, host: str = "kube-2") -> NodeStatus:
    is_head = name == "head"
    cpus, gpus = (1, 0) if is_head else (2, 1)
    return NodeStatus(name, "head" if is_head else "gpu", host, state, cpus, gpus, seen)  # type: ignore[arg-type]


def test_every_node_is_there_or_said_to_be_missing(tmp_path: Path) -> None:
    seen = look(head(), pod(WORKER, ready=True), cluster=ray_cluster(group("gpu", 3)))
    declared = view.declared(spec(tmp_path, "{name: gpu, count: 3, cpus: 2, gpus: 1}"), seen)
    assert view.statuses(declared, seen.facts, frozenset({"head", "gpu-x7k2p"})) == (
        node("head", "up", host="kube-1"),
        node("gpu-x7k2p", "up"),
        node("gpu-?2", "absent", "no pod", host=""),
        node("gpu-?3", "absent", "no pod", host=""),
    )


def test_ray_knows_better_than_a_kubelet_that_was_just_started_again(tmp_path: Path) -> None:
    seen = look(head(), pod(WORKER, containers=(running(),)), cluster=ray_cluster(group("gpu", 1)))
    declared = view.declared(spec(tmp_path, "{name: gpu, count: 1, cpus: 2, gpus: 1}"), seen)
    assert view.statuses(declared, seen.facts, frozenset({"head", "gpu-x7k2p"}))[1] == node("gpu-x7k2p", "up")
    waits = node("gpu-x7k2p", "starting", "starts Ray")
    assert view.statuses(declared, seen.facts, frozenset({"head"}))[1] == waits


def test_a_cluster_that_is_not_there_is_down_with_what_the_file_says(tmp_path: Path) -> None:
    declared = view.declared(spec(tmp_path, "{name: gpu, count: 1, cpus: 2, gpus: 1}"), look())
    assert view.statuses(declared, Facts(pods=()), frozenset()) == (
        NodeStatus("head", "head", "", "absent", None, 0, "no pod"),
        NodeStatus("gpu-?1", "gpu", "", "absent", 2, 1, "no pod"),
    )


def test_a_node_says_why_it_is_not_up(tmp_path: Path) -> None:
    pods = (
        head(),
        pod(WORKER, ready=True),
        pod(OTHER, init=(waiting("ImagePullBackOff", "x: not found", name="wait-gcs-ready"),)),
        pod("lab-gpu-worker-a", init=(running("wait-gcs-ready"),)),
        pod("lab-gpu-worker-b", ready=True, leaving=True),
    )
    seen = look(*pods, cluster=ray_cluster(group("gpu", 4)))
    declared = view.declared(spec(tmp_path, "{name: gpu, count: 4}"), seen)
    found = view.statuses(declared, seen.facts, frozenset({"head"}))
    assert [(one.name, one.state, one.detail) for one in found] == [
        ("head", "up", ""),
        ("gpu-x7k2p", "starting", "not yet in Ray"),
        ("gpu-abc12", "broken", "cannot pull its image: registry 192.0.2.10:5000 has no such image"),
        ("gpu-a", "starting", "waits for the head, which is ready"),
        ("gpu-b", "broken", "is being removed"),
    ]


def test_what_the_file_does_not_ask_for_is_surplus_unless_ray_added_it(tmp_path: Path) -> None:
    pods = (head(), pod(WORKER, ready=True), pod(OTHER, ready=True))
    alive = frozenset({"head", "gpu-x7k2p", "gpu-abc12"})
    fixed = look(*pods, cluster=ray_cluster(group("gpu", 2)))
    states = [
        one.state
        for one in view.statuses(view.declared(spec(tmp_path, "{name: gpu, count: 1}"), fixed), fixed.facts, alive)
    ]
    assert states == ["up", "up", "surplus"]
    grows = look(*pods, cluster=ray_cluster(group("gpu", 1, 3), autoscaling=True))
    declared = view.declared(spec(tmp_path, "{name: gpu, min: 1, max: 3}"), grows)
    assert [one.state for one in view.statuses(declared, grows.facts, alive)] == ["up", "up", "up"]


def test_a_run_is_promised_what_there_is_and_what_ray_may_add() -> None:
    cluster = ray_cluster(group("gpu", 1, 3), autoscaling=True)
    few = list(view.expected(view.made(look(head(), pod(WORKER, ready=True), cluster=cluster))))
    assert few == [
        ExpectedNode("head", "head", 1, 0, 2**31),
        ExpectedNode("gpu-x7k2p", "gpu", 2, 1, 2**32),
        ExpectedNode("gpu-?2", "gpu", 2, 1, 2**32, optional=True),
        ExpectedNode("gpu-?3", "gpu", 2, 1, 2**32, optional=True),
    ]
    more = list(
        view.expected(view.made(look(head(), pod(WORKER, ready=True), pod(OTHER, ready=True), cluster=cluster)))
    )
    assert [(one.name, one.optional) for one in more] == [
        ("head", False),
        ("gpu-x7k2p", True),
        ("gpu-abc12", True),
        ("gpu-?3", True),
    ]


def test_a_group_of_none_at_first_promises_none_and_may_get_all() -> None:
    cluster = ray_cluster(group("gpu", 0, 2), autoscaling=True)
    found = view.made(look(head(), cluster=cluster))
    assert [(one.name, one.optional) for one in view.expected(found)] == [
        ("head", False),
        ("gpu-?1", True),
        ("gpu-?2", True),
    ]
    assert list(view.down(found, Facts(pods=()))) == []


def test_nodes_that_are_known_not_to_run_are_named_before_a_run_waits_for_them() -> None:
    refused = condition(
        "PodScheduled", "False", reason="Unschedulable", message="0/1 nodes are available: 1 Too many pods."
    )
    seen = look(
        head(),
        pod(WORKER, host="", conditions=(refused,)),
        pod(OTHER, ready=True),
        pod("lab-gpu-worker-a", phase="Running", containers=(running(),)),
        cluster=ray_cluster(group("gpu", 4)),
    )
    assert list(view.down(view.made(seen), seen.facts)) == [
        ("gpu-?4", "no pod"),
        (
            "gpu-x7k2p",
            "found no room for 2 CPUs and 4GiB of memory; of 1 node 1 is full: no room for another pod",
        ),
    ]


def test_a_head_that_goes_is_none_beside_another() -> None:
    old = head(leaving=True)
    new = pod("lab-head-h2", group="head", host="kube-2", ready=True)
    assert look(old, new).head == new
    assert look(old).head == old


def test_a_node_that_goes_beside_its_successor_is_not_promised() -> None:
    leaving, successor = pod(WORKER, ready=True, leaving=True), pod(OTHER, ready=True)
    found = view.made(look(head(), leaving, successor, cluster=ray_cluster(group("gpu", 1))))
    assert [one.name for one in view.expected(found)] == ["head", "gpu-abc12"]
    alone = view.made(look(head(), leaving, cluster=ray_cluster(group("gpu", 1))))
    assert list(view.down(alone, Facts(pods=()))) == [("gpu-x7k2p", "is being removed")]


def test_a_silent_operator_is_no_more_than_waited_for() -> None:
    facts = Facts(pods=(), owner=ray_cluster(group("gpu", 1), generation=2))
    assert list(view.problems(facts, ())) == ["waits for the KubeRay operator"]
