"""For what tasks wait, in words: who holds it, or what no node has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from trainyard_runner.head.holdings import Holding, kept_free
from trainyard_runner.head.waiting import Cluster, Line, explain, installing
from trainyard_runner.wire.nodes import Node
from trainyard_runner.wire.plan import Gate, Task
from trainyard_runner.wire.room import Room

GIB = 2**30
HEAD = Node("1", "head", None, "192.0.2.1", {"CPU": 4, "memory": 16 * GIB})
GPU = Node("2", "gpu-0", "gpu", "192.0.2.2", {"CPU": 4, "GPU": 2, "memory": 16 * GIB})
BUSY = {"1": {"CPU": 1.0, "memory": 16.0 * GIB}, "2": {"CPU": 0.0, "GPU": 1.0, "memory": 8.0 * GIB}}


def task(**asks: Any) -> Task:
    return Task(0, "t", ("true",), {}, **asks)


def held(run: str, node: str, **amounts: float) -> Holding:
    return Holding(run, {node: {"CPU": 0, "GPU": 0, "memory": 0, "tasks": 1, **amounts}})


def waits(
    count: int, *unit: Task, holdings: tuple[Holding, ...] = (), free: Any = BUSY
) -> str | None:
    wait = explain(Line(count, unit), Gate(), Cluster([HEAD, GPU], free, holdings), run="mine-1")
    return wait.text if wait else None


def test_holders_of_cpus_are_named_this_run_and_nameless_ones_too() -> None:
    holdings = (held("mine-1", "gpu-0", CPU=1), held("cartpole-1", "head", CPU=3, tasks=3))
    assert waits(12, task(cpus=2), holdings=holdings) == (
        "12 tasks wait for 2 CPUs each: 7 of 8 CPUs in use, 1 by this run (1 task), 3 by run "
        "cartpole-1 (3 tasks), "
        "3 by others, at most 1 free on one node"
    )


@pytest.mark.parametrize(
    ("asks", "text"),
    [
        # Only what lacks is said, and only of nodes where the task may run.
        (
            {"gpus": 2, "cpus": 0},
            "2 GPUs: 1 of 2 GPUs in use, 1 by others, at most 1 free on one node",
        ),
        ({"node_group": "gpu"}, "1 CPU, a node of group gpu: 4 of 4 CPUs in use, 4 by others"),
        (
            {"memory": 12 * GIB, "cpus": 0, "gpus": 1},
            "1 GPU, 12 GiB: 8 of 16 GiB in use, 8 by others, at most 8 free on one node",
        ),
        (
            {"memory": 32 * GIB},
            "1 CPU, 32 GiB: no node has that; the largest node has 4 CPUs, 2 GPUs, 16 GiB",
        ),
        (
            {"share": 1, "on_gpus": True},
            "4 CPUs, 2 GPUs, 16 GiB: 4 of 4 CPUs in use, 4 by others; 1 of 2 GPUs in use, 1 by"
            " others, at most 1 free on one node; 8 of 16 GiB in use, 8 by others, at most 8 "
            "free on one node",
        ),
        (
            {"cpus": 0, "custom": {"A100": 1}},
            "1 A100: no node has that; the largest node has 4 CPUs, 2 GPUs, 0 A100",
        ),
        (
            {"node_name": "gpu-7"},
            "1 CPU, node gpu-7: no node has that; the largest node has 4 CPUs, 2 GPUs",
        ),
    ],
)
def test_a_task_says_what_lacks_for_it(asks: dict[str, Any], text: str) -> None:
    assert waits(1, task(**asks)) == f"1 task waits for {text}"


def test_a_task_that_has_room_does_not_wait() -> None:
    assert waits(3, task(cpus=1)) is None


def test_room_split_over_nodes_is_reported_for_each_resource() -> None:
    other = replace(GPU, node_id="3", name="gpu-1")
    free = {"2": {"CPU": 4.0}, "3": {"GPU": 2.0}}
    wait = explain(Line(1, (task(gpus=1),)), Gate(), Cluster([GPU, other], free, ()), run="mine-1")
    assert wait is not None
    assert wait.text == (
        "1 task waits for 1 CPU, 1 GPU: 4 of 8 CPUs in use, 4 by others, at most 4 free on one "
        "node; "
        "2 of 4 GPUs in use, 2 by others, at most 2 free on one node"
    )


def test_a_gang_waits_for_all_that_it_needs_at_once() -> None:
    assert waits(2, task(cpus=1), task(cpus=1)) == (
        "2 tasks that run together wait for 2 CPUs in all: 7 of 8 CPUs in use, 7 by others, at "
        "most 1 free on one node"
    )


def test_a_wait_keeps_its_needs_and_holders_when_amounts_change() -> None:
    holdings = [held("cartpole-1", "gpu-0", CPU=4), held("idle-1", "head")]
    wait = explain(
        Line(1, (task(node_group="gpu"),)),
        Gate(),
        Cluster([HEAD, GPU], BUSY, holdings),
        run="mine-1",
    )

    assert wait is not None
    assert (wait.needs, wait.holders) == ("1 CPU, a node of group gpu", ("cartpole-1",))
    fewer = replace(GPU, resources={**GPU.resources, "CPU": 8})

    again = explain(
        Line(9, (task(node_group="gpu"),)),
        Gate(),
        Cluster([HEAD, fewer], BUSY, holdings),
        run="mine-1",
    )

    assert again is not None
    assert (again.needs, again.holders) == (wait.needs, wait.holders)


def wants(count: int, *, cpus: float, holdings: tuple[Holding, ...]) -> str | None:
    everything = {node.node_id: node.resources for node in (HEAD, GPU)}
    return waits(count, task(actors=Room(cpus=cpus)), holdings=holdings, free=everything)


def test_room_that_tasks_keep_free_for_actors_is_not_given_to_others() -> None:
    keeping = replace(held("ppo-1", "head", CPU=1), actors={"CPU": 5.0})
    mine = held("mine-1", "gpu-0", CPU=1)
    assert kept_free([task(cpus=1)], [HEAD, GPU], [keeping]) == []
    assert kept_free([task(cpus=1), task(cpus=1)], [HEAD, GPU], [keeping, mine]) == ["CPU"]
    assert wants(1, cpus=0.5, holdings=(keeping,)) is None
    assert wants(2, cpus=2, holdings=(keeping, mine)) == (
        "2 tasks wait for 1 CPU, with 2 CPUs free for its actors each: 7 of 8 CPUs in use or "
        "kept free, "
        "6 by run ppo-1, 1 by this run"
    )


def test_a_task_that_ray_has_does_not_wait_for_the_room_of_its_own_actors() -> None:
    everything = {node.node_id: node.resources for node in (HEAD, GPU)}
    mine = Holding("mine-1", {}, actors={"CPU": 7.0})
    line = Line(1, (task(actors=Room(cpus=7)),), is_submitted=True)
    cluster = Cluster([HEAD, GPU], everything, (mine,))
    assert explain(line, Gate(), cluster, run="mine-1") is None
    assert explain(replace(line, is_submitted=False), Gate(), cluster, run="mine-1") is not None


def test_while_no_task_keeps_room_free_ray_alone_decides() -> None:
    assert kept_free([task(cpus=4)], [HEAD], [held("ppo-1", "head", CPU=4)]) == []


def test_room_that_the_cluster_never_has_is_said() -> None:
    assert wants(1, cpus=8, holdings=()) == (
        "1 task waits for 1 CPU, with 8 CPUs free for its actors: the cluster has 8 CPUs in all"
    )


def test_resources_that_tasks_started_through_ray_count_for_their_run() -> None:
    ppo = held("ppo-1", "gpu-0", CPU=1)
    started = {"ppo-1": {"head": {"CPU": 2.0}, "gpu-0": {"CPU": 3.0}}}
    wait = explain(
        Line(1, (task(cpus=2),)), Gate(), Cluster([HEAD, GPU], BUSY, (ppo,), started), run="mine-1"
    )
    assert wait is not None
    assert wait.text == (
        "1 task waits for 2 CPUs: 7 of 8 CPUs in use, 6 by run ppo-1 (1 task and actors "
        "or placement groups), 1 by others, at most 1 free on one node"
    )


@pytest.mark.parametrize(
    ("runtime_env", "seconds", "text"),
    [
        ({}, 9, None),
        ({"env_vars": {"A": "1"}}, 9, None),
        (
            {"uv": ["torch"]},
            9,
            "1 task waits for Ray, which first installs torch where a node lacks them",
        ),
        (
            {"uv": {"packages": ["torch", "scipy==1.2"]}},
            9,
            "1 task waits for Ray, which first installs torch, scipy==1.2 where a node lacks them",
        ),
        (
            {
                "pip": {
                    "packages": [
                        "${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}/dist/a.whl",
                        "b",
                        "c",
                        "d",
                        "e",
                        "f",
                    ]
                }
            },
            125,
            (
                "1 task waits for Ray, which first installs a.whl, b, c, d and 2 more where a node "
                "lacks them, for 2 min"
            ),
        ),
        ({"conda": "robots"}, 60, None),
        (
            {"conda": {"dependencies": []}},
            60,
            (
                "1 task waits for Ray, which first installs a conda environment where a node lacks "
                "them, for 1 min"
            ),
        ),
    ],
)
def test_tasks_with_room_wait_for_their_packages(
    runtime_env: dict[str, Any], seconds: float, text: str | None
) -> None:
    found = installing(Line(1, (task(),)), runtime_env, seconds=seconds)
    assert (found.text if found else None) == text
