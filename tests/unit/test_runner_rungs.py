"""The rungs: what nodes say, against what must be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from trainyard_runner import gpu_rungs, members, rungs
from trainyard_runner.nodes import Node
from trainyard_runner.plan import ExpectedNode, Gate, Task
from trainyard_runner.room import room
from trainyard_runner.rungs import Answer, Check

GIB = 2**30
HEAD = Node("1", "head", None, "192.0.2.1", {"CPU": 2})
GPU_0 = Node("2", "gpu-0", "gpu", "192.0.2.2", {"CPU": 4, "GPU": 2, "memory": 8 * GIB})
GPU_1 = Node("3", "gpu-1", "gpu", "192.0.2.3", {"CPU": 4, "GPU": 2, "memory": 8 * GIB})
EXPECTED = (ExpectedNode("head"), ExpectedNode("gpu-0", "gpu", 4, 2), ExpectedNode("gpu-1", "gpu", 4, 2))


def said(node: Node, *, isolated: bool = False, **facts: Any) -> Answer:
    usual = {
        "ray": "2.60.0",
        "python": "3.11.7",
        "disk": {"free": 50 * GIB, "total": 100 * GIB},
        "shm": {"free": 8 * GIB, "total": 8 * GIB},
        "assigned": [],
        "visible": "",
    }
    return Answer(node, {**usual, **facts}, 0.5, isolated=isolated)


def one(checks: Any) -> Check:
    (check,) = checks
    assert isinstance(check, Check)
    return check


def test_a_missing_node_is_named_with_those_that_are_there() -> None:
    checks = {check.node: check for check in rungs.nodes(Gate(nodes=EXPECTED), [HEAD, GPU_0], seconds=60.0)}
    assert checks["gpu-0"].ok
    assert not checks["gpu-1"].ok
    assert checks["gpu-1"].detail == "not in the cluster after 60 s; there are gpu-0, head"


def test_a_missing_node_and_a_silent_one_are_looked_into() -> None:
    gate = Gate(nodes=EXPECTED)
    *_, missing = rungs.nodes(gate, [HEAD, GPU_0], seconds=60.0)
    assert missing.hint == "`invoke cluster.up` starts what is missing, or says why it cannot."
    silent = one(rungs.task([Answer(GPU_0, None, 60.0, problem="no answer")], gate))
    assert silent.hint == "Look at the node's raylet and worker logs: `invoke cluster.logs`."


def test_a_node_that_was_removed_is_not_tested_although_ray_does_not_miss_it_yet() -> None:
    assert members.declared(Gate(nodes=EXPECTED[:2]), [HEAD, GPU_0, GPU_1]) == [HEAD, GPU_0]
    assert members.declared(Gate(), [HEAD, GPU_0]) == [HEAD, GPU_0]


def test_a_silent_node_that_ray_calls_dead_by_now_has_left() -> None:
    silent = Answer(GPU_0, None, 24.0, problem="TaskUnschedulableError: lease_id=0300")
    (left,) = rungs.without_gone([silent], [HEAD], Gate())
    assert left.problem == "it left the cluster while it was asked"
    assert rungs.without_gone([silent], [HEAD, GPU_0], Gate()) == [silent]
    again = replace(GPU_0, node_id="9")
    assert rungs.without_gone([silent, said(again)], [HEAD, again], Gate()) == [said(again)]


def test_nodes_that_may_come_later_are_not_missed() -> None:
    gate = Gate(nodes=(ExpectedNode("head"), ExpectedNode("burst-0", optional=True)))
    assert one(rungs.nodes(gate, [HEAD], seconds=0.0)).ok


def test_without_a_cluster_file_the_living_nodes_are_the_cluster() -> None:
    assert [check.node for check in rungs.nodes(Gate(), [HEAD, GPU_0], seconds=0.0)] == ["head", "gpu-0"]


def test_fewer_nodes_than_the_job_needs() -> None:
    *_, last = rungs.nodes(Gate(needs={"min_nodes": 3}), [HEAD, GPU_0], seconds=0.0)
    assert (last.ok, last.detail) == (False, "2 nodes, the job needs 3")


def test_another_python_on_a_node_fails_there() -> None:
    answers = [said(HEAD), said(GPU_0, python="3.10.4")]
    good, bad = rungs.versions(answers, rungs.Head("2.60.0", "3.11.7"), Gate())
    assert good.ok
    assert bad.detail == "Ray 2.60.0, Python 3.10.4; expected Ray 2.60.0, Python 3.11.7"


def test_a_node_that_says_nothing_is_named_and_judged_by_nothing_else() -> None:
    silent = Answer(GPU_0, None, 60.0, problem="no answer within 60 s")
    assert one(rungs.task([silent], Gate())).detail == "no answer within 60 s"
    assert list(rungs.versions([silent], rungs.Head("2.60.0", "3.11.7"), Gate())) == []


def test_a_cluster_without_gpus_is_not_tested_for_them() -> None:
    check = one(gpu_rungs.gpus([said(HEAD)], Gate()))
    assert (check.ok, check.skipped, check.detail) == (True, True, "no GPUs declared")


def test_a_job_that_needs_gpus_fails_without_them() -> None:
    check = one(gpu_rungs.gpus([said(HEAD)], Gate(needs={"gpus": True})))
    assert (check.ok, check.detail) == (False, "the job needs GPUs, and no node has any")


@pytest.mark.parametrize(
    ("smi", "ok", "detail"),
    [
        ({"count": 2}, True, "2: declared, Ray's and nvidia-smi's count agree"),
        ({"count": 1}, False, "2 declared, nvidia-smi counts 1"),
        ({"error": "nvidia-smi is not installed there"}, False, "nvidia-smi is not installed there"),
    ],
)
def test_the_driver_must_agree(smi: dict[str, Any], ok: bool, detail: str) -> None:
    check = one(gpu_rungs.gpus([said(GPU_0, nvidia_smi=smi)], Gate(nodes=EXPECTED)))
    assert (check.ok, check.detail) == (ok, detail)


def test_simulated_gpus_are_called_so() -> None:
    check = one(gpu_rungs.gpus([said(GPU_0)], Gate(nodes=EXPECTED, simulated_gpus=True)))
    assert check.detail == "2, simulated; nvidia-smi not asked"


@pytest.mark.parametrize(
    ("torch", "ok", "detail"),
    [
        ({"version": "2.5", "count": 2, "wrong": []}, True, "torch 2.5, 2 GPUs, products correct"),
        ({"version": "2.5", "count": 0, "wrong": []}, False, "torch 2.5 sees 0 GPUs, Ray 2"),
        ({"version": "2.5", "count": 2, "wrong": [1]}, False, "wrong product of matrices on GPU 1"),
        ({"error": "no kernel image"}, False, "no kernel image"),
        ({"missing": True}, True, "not importable there"),
    ],
)
def test_torch_must_see_the_gpus_and_multiply(torch: dict[str, Any], ok: bool, detail: str) -> None:
    check = one(gpu_rungs.torch([said(GPU_0, torch=torch)], Gate(nodes=EXPECTED)))
    assert (check.ok, check.detail) == (ok, detail)


def test_a_job_that_needs_torch_fails_where_it_is_missing() -> None:
    check = one(gpu_rungs.torch([said(GPU_0, torch={"missing": True})], Gate(needs={"torch": True})))
    assert not check.ok


@pytest.mark.parametrize(
    ("facts", "ok"),
    [
        ({"assigned": ["1"], "visible": "1"}, True),
        ({"assigned": ["1"], "visible": "0,1"}, False),
        ({"assigned": ["1"], "visible": None}, False),
        ({"assigned": ["1"], "visible": "1", "torch_isolated": {"count": 2}}, False),
    ],
)
def test_a_task_with_one_gpu_sees_that_one(facts: dict[str, Any], ok: bool) -> None:
    assert one(gpu_rungs.isolation([said(GPU_0, isolated=True, **facts)], Gate())).ok is ok


def test_isolation_is_not_tried_while_all_gpus_are_in_use() -> None:
    check = one(gpu_rungs.isolation([said(GPU_0)], Gate()))
    assert (check.skipped, check.detail) == (True, "all GPUs are in use")


def test_a_full_disk_and_a_small_shm_fail() -> None:
    tight = {"free": 10 * 2**20, "total": 64 * 2**20}
    disk, shm = rungs.space([said(HEAD, disk=tight, shm=tight)], Gate())
    assert (disk.ok, disk.detail) == (False, "10 MiB free of 64 MiB")
    assert (shm.ok, shm.hint) == (False, "Make room in /dev/shm (Docker: --shm-size): at least 64 MiB must be free.")


def test_a_job_may_ask_for_more_disk() -> None:
    disk, _ = rungs.space([said(HEAD)], Gate(needs={"min_disk": 60 * GIB}))
    assert not disk.ok


def test_a_broken_way_between_two_nodes_is_named() -> None:
    results: dict[str, dict[str, Any]] = {
        "head": {"gpu-0": {"rate": 90.0}},
        "gpu-0": {"head": {"error": "GetTimeoutError after 30 s"}},
    }
    good, bad = rungs.transfer(results, 1.0)
    assert good.detail == "90 MB/s from gpu-0"
    assert (bad.node, bad.detail) == ("gpu-0", "nothing from head: GetTimeoutError after 30 s")


def asks(**more: Any) -> Task:
    return Task(index=0, name="t", command=("true",), env={}, **more)


@pytest.mark.parametrize(
    "task",
    [
        asks(),
        asks(gpus=2),
        asks(gpus=0.5, cpus=0),
        asks(memory=8 * GIB, node_group="gpu"),
        asks(node_name="gpu-1"),
        asks(cpus=0),
    ],
)
def test_a_task_that_some_node_can_hold_fits(task: Task) -> None:
    check = room([task], Gate(), [HEAD, GPU_0, GPU_1], together=False)
    assert check is not None
    assert check.ok


@pytest.mark.parametrize(
    ("task", "asked"),
    [
        (asks(gpus=3), "1 CPU, 3 GPUs"),
        (asks(cpus=5), "5 CPUs"),
        (asks(cpus=5, node_name="gpu-0"), "5 CPUs, node gpu-0"),
        (asks(cpus=3, node_group="cpu"), "3 CPUs, a node of group cpu"),
    ],
)
def test_a_task_that_no_node_can_hold_says_what_it_asks_for(task: Task, asked: str) -> None:
    check = room([task], Gate(), [HEAD, GPU_0], together=False)
    assert check is not None
    assert check.detail == f"task 't' asks for {asked}; the largest node has 4 CPUs, 2 GPUs"


def test_memory_that_no_node_has_is_shown_beside_what_the_largest_has() -> None:
    check = room([asks(memory=32 * GIB)], Gate(), [HEAD, GPU_0], together=False)
    assert check is not None
    assert check.detail == "task 't' asks for 1 CPU, 32 GiB; the largest node has 4 CPUs, 2 GPUs, 8 GiB"


def test_nodes_that_an_autoscaler_may_add_are_room_too() -> None:
    later = ExpectedNode("big-0", "big", 64, 8, optional=True)
    check = room([asks(gpus=8)], Gate(nodes=(later,)), [HEAD], together=False)
    assert check is not None
    assert check.ok


def test_a_gang_must_fit_as_a_whole() -> None:
    gang = [asks(gpus=1) for _ in range(5)]
    fits = room(gang[:4], Gate(), [HEAD, GPU_0, GPU_1], together=True)
    too_many = room(gang, Gate(), [HEAD, GPU_0, GPU_1], together=True)
    assert fits is not None
    assert fits.ok
    assert too_many is not None
    assert too_many.detail == "5 tasks that run together do not fit on 3 nodes at once"


def held(*visible: str) -> tuple[dict[str, Any], ...]:
    return tuple({"assigned": [one], "visible": one, "met": True} for one in visible)


@pytest.mark.parametrize(
    ("each", "ok", "detail"),
    [
        (held("1", "0"), True, "2 1-GPU tasks at once see GPU 0, 1, each its own only"),
        ((), True, "a 1-GPU task sees GPU 0 only"),
        (held("0", "0"), False, "2 tasks that run at the same time see GPU 0, 0: one of them is shared"),
        (
            ({"assigned": ["0"], "visible": "0,1", "met": True},),
            False,
            "a task with GPU ['0'] sees CUDA_VISIBLE_DEVICES='0,1'",
        ),
        (({"problem": "boom"},), False, "no task with a GPU runs beside the others: boom"),
    ],
)
def test_tasks_on_all_gpus_of_a_node_each_see_their_own(
    each: tuple[dict[str, Any], ...], ok: bool, detail: str
) -> None:
    answer = replace(said(GPU_0, isolated=True, assigned=["0"], visible="0"), each=each)
    check = one(gpu_rungs.isolation([answer], Gate(nodes=EXPECTED)))
    assert (check.ok, check.detail) == (ok, detail)
