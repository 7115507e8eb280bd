"""A request that no node of the cluster can ever meet is refused before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trainyard_runner.wire.plan import ExpectedNode

from trainyard.dispatch import plan
from trainyard.dispatch.capacity import refuse_what_never_fits
from trainyard.endpoint import Endpoint
from trainyard.errors import RequestError
from trainyard.seams.ray_types import node_from
from trainyard.spec.cluster import ClusterSpec, LoadedCluster
from trainyard.spec.expand import expand
from trainyard.spec.job import JobSpec

GIBIBYTE = 2**30
CLUSTER = LoadedCluster(ClusterSpec(name="lab", backend="local"), Path("clusters/lab.yaml"))
HEAD = ExpectedNode("head", "head", 2, memory=8 * GIBIBYTE)
WORKERS = tuple(ExpectedNode(f"cpu-{n}", "cpu", 2, memory=8 * GIBIBYTE) for n in range(2))
BURST = tuple(
    ExpectedNode(f"gpu-?{n + 1}", "gpu", 16, 4, 64 * GIBIBYTE, optional=True) for n in range(2)
)
LESS = "Ask for less in the job file (resources, node), or make larger nodes in the cluster file."


class Ray:
    """Ray's answer about its nodes."""

    def nodes(self) -> tuple[Any, ...]:
        row = {
            "node_name": "theirs",
            "state": "ALIVE",
            "resources_total": {"CPU": 4, "memory": 1e9},
        }
        return (
            node_from({**row, "node_id": "a"}),
            node_from({**row, "node_id": "b", "state": "DEAD", "resources_total": {"CPU": 64}}),
        )

    def host_names(self) -> dict[str, str]:
        return {"a": "robot-7"}


def check(*nodes: ExpectedNode, skip_smoke: bool = False, **job: Any) -> None:
    """Check a job against a cluster of these nodes; without any, against another user's cluster."""
    spec = JobSpec.model_validate({"name": "job", "command": ["train"], **job})
    prepared = plan.Prepared(CLUSTER, spec, expand(spec), files=None, wheels=())  # type: ignore[arg-type]
    names_change = any(node.optional for node in nodes)
    endpoint = Endpoint("lab", "", expected=nodes or None, names_change=names_change)
    refuse_what_never_fits(prepared, endpoint, Ray(), skip_smoke=skip_smoke)  # type: ignore[arg-type]


def refused(*nodes: ExpectedNode, **job: Any) -> list[str]:
    with pytest.raises(RequestError) as error:
        check(*nodes, **job)
    assert error.value.exit_code == 2
    return list(error.value.lines())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"cpus": 64}, "task 'job' asks for 64 CPUs; the largest node has 2 CPUs, 0 GPUs"),
        ({"gpus": 0.5}, "task 'job' asks for 1 CPU, 0.5 GPUs; the largest node has 2 CPUs, 0 GPUs"),
        (
            {"memory": "9GiB"},
            "task 'job' asks for 1 CPU, 9 GiB; the largest node has 2 CPUs, 0 GPUs, 8 GiB",
        ),
    ],
)
def test_a_request_that_no_node_can_ever_meet_is_refused(
    asked: dict[str, object], said: str
) -> None:
    assert refused(HEAD, *WORKERS, resources=asked) == [
        said,
        "  at job job on cluster lab; nothing was sent",
        f"  -> {LESS}",
    ]


def test_a_share_of_a_node_always_fits_and_a_gang_s_only_side_by_side() -> None:
    tasks = [{"name": f"t{n}", "command": ["train"]} for n in range(9)]
    gang: Any = {"command": None, "together": True, "resources": {"share": "1/2"}}
    check(HEAD, *WORKERS, resources={"share": 1})
    check(HEAD, *WORKERS, tasks=tasks[:6], **gang)
    assert refused(HEAD, *WORKERS, tasks=tasks[:7], **gang)[0] == (
        "7 tasks that run together do not fit on 3 nodes at once"
    )
    # Where some nodes have GPUs, a share is of one of these.
    check(HEAD, *WORKERS, *BURST, tasks=tasks[:4], **gang)
    assert refused(HEAD, *WORKERS, *BURST, tasks=tasks[:5], **gang)[0] == (
        "5 tasks that run together do not fit on 5 nodes at once"
    )
    check(HEAD, *WORKERS, *BURST, tasks=tasks[:4], node={"group": "cpu"}, **gang)


def test_a_head_without_cpus_for_tasks_has_no_share() -> None:
    kept_free = ExpectedNode("head", "head", 0, memory=8 * GIBIBYTE)
    assert refused(kept_free, resources={"share": 0.5})[0] == (
        "task 'job' asks for 0.5 of a node; the largest node has 0 CPUs, 0 GPUs"
    )


def test_a_custom_resource_is_had_where_the_file_or_ray_says_so() -> None:
    special = ExpectedNode("gpu-0", "gpu", 4, 1, 8 * GIBIBYTE, resources={"A100": 2})
    check(HEAD, special, resources={"custom": {"A100": 2}})
    check(HEAD, special, resources={"share": 1, "custom": {"A100": 1}})
    assert refused(HEAD, special, resources={"custom": {"A100": 3}})[0] == (
        "task 'job' asks for 1 CPU, 3 A100; the largest node has 4 CPUs, 1 GPU, 2 A100"
    )
    assert refused(resources={"custom": {"A100": 1}})[0].endswith("4 CPUs, 0 GPUs, 0 A100")


def test_each_task_of_a_list_is_looked_at() -> None:
    tasks = [
        {"name": "small", "command": ["train"]},
        {"name": "large", "command": ["train"], "resources": {"cpus": 3}},
    ]
    said = refused(HEAD, command=None, tasks=tasks)
    assert said[0] == "task 'large' asks for 3 CPUs; the largest node has 2 CPUs, 0 GPUs"


def test_the_trial_of_a_sweep_is_looked_at() -> None:
    tune = {"space": {"lr": {"uniform": [0.1, 1.0]}}, "metric": "loss", "samples": 4}
    said = refused(HEAD, command=["train", "{lr}"], tune=tune, resources={"cpus": 3})
    assert said[0] == "task 'trial' asks for 3 CPUs; the largest node has 2 CPUs, 0 GPUs"


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"group": "gpu"}, "task 'job' is to run on group gpu; the groups are head, cpu"),
        ({"name": "cpu-2"}, "task 'job' is to run on node cpu-2; the nodes are head, cpu-0, cpu-1"),
    ],
)
def test_a_place_that_does_not_exist_is_refused(node: dict[str, str], said: str) -> None:
    assert refused(HEAD, *WORKERS, node=node)[0] == said


def test_a_node_is_named_by_its_host_or_rays_id_too() -> None:
    for name in ("theirs", "robot-7", "a"):
        check(node={"name": name}, resources={"cpus": 4})
        check(HEAD, node={"name": name}, resources={"cpus": 4})
    assert refused(HEAD, node={"name": "robot-8"})[0] == (
        "task 'job' is to run on node robot-8; the nodes are head"
    )


def test_a_name_on_kubernetes_is_answered_with_the_group() -> None:
    said = refused(HEAD, *BURST, node={"name": "gpu-0"})
    assert said[-1].endswith("say `node: {group: ...}` in the job file.")


def test_tasks_that_run_together_need_room_at_once() -> None:
    gang: dict[str, Any] = {
        "together": True,
        "matrix": {"rank": [0, 1, 2, 3]},
        "command": ["train", "{rank}"],
    }
    check(HEAD, *WORKERS, **gang, resources={"cpus": 1})
    said = refused(HEAD, *WORKERS, **gang, resources={"cpus": 1.5})
    assert said[0] == "4 tasks that run together do not fit on 3 nodes at once"


def test_a_request_that_may_fit_is_accepted() -> None:
    check(HEAD, resources={"cpus": 0.25})
    check(HEAD, resources={"cpus": 0})
    # Groups that grow count with all their nodes.
    check(HEAD, *BURST, resources={"cpus": 16, "gpus": 4, "memory": "64GiB"})
    check(HEAD, *BURST, node={"group": "gpu"})
    # The number of this node's CPUs is unknown.
    check(ExpectedNode("head", "head", None), resources={"cpus": 1000})


def test_a_foreign_cluster_has_the_resources_that_ray_reports() -> None:
    check(resources={"cpus": 4})
    assert refused(resources={"cpus": 8})[0] == (
        "task 'job' asks for 8 CPUs; the largest node has 4 CPUs, 0 GPUs"
    )
    # Its autoscaler may add nodes that are unknown here.
    check(resources={"cpus": 8}, skip_smoke=True)


ACTORS = (
    "Ask for less in the job file (resources.actors), or make more or larger nodes in the "
    "cluster file."
)


def test_room_for_actors_is_asked_of_all_nodes_together() -> None:
    check(HEAD, *WORKERS, resources={"cpus": 1, "actors": {"cpus": 5}})
    check(HEAD, *BURST, resources={"cpus": 1, "actors": {"cpus": 32, "gpus": 8}})
    assert refused(HEAD, *WORKERS, resources={"cpus": 1, "actors": {"cpus": 6}}) == [
        "task 'job' asks for 1 CPU, with 6 CPUs free for its actors; the cluster has 6 CPUs in all",
        "  at job job on cluster lab; nothing was sent",
        f"  -> {ACTORS}",
    ]

    two = [{"name": name, "command": ["train"]} for name in "ab"]
    job: dict[str, Any] = {
        "command": None,
        "tasks": two,
        "together": True,
        "resources": {"actors": {"cpus": 2, "memory": "1GiB"}},
    }

    check(HEAD, *WORKERS, **job)
    assert refused(HEAD, *WORKERS[:1], **job)[0] == (
        "2 tasks that run together ask for 2 CPUs, with 4 CPUs and 2 GiB free for its actors; "
        "the cluster has 4 CPUs in all"
    )
