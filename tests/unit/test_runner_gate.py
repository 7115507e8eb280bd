"""The gate's rungs: nodes' answers against demands; the cluster's nodes; the tasks that fit."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from trainyard_runner.head import gpu_rungs, rungs
from trainyard_runner.head.rungs import Answer
from trainyard_runner.node.facts import gpu_models
from trainyard_runner.wire import fit as rooms
from trainyard_runner.wire import members
from trainyard_runner.wire.events import Check
from trainyard_runner.wire.fit import room
from trainyard_runner.wire.nodes import HEAD as HEAD_RESOURCE
from trainyard_runner.wire.nodes import Node
from trainyard_runner.wire.plan import ExpectedNode, Gate, Task

GIB = 2**30
HEAD = Node("1", "head", "head", "192.0.2.1", {"CPU": 2, HEAD_RESOURCE: 1})
GPU_0 = Node("2", "gpu-0", "gpu", "192.0.2.2", {"CPU": 4, "GPU": 2, "memory": 8 * GIB})
GPU_1 = replace(GPU_0, node_id="3", name="gpu-1")
ALL = [HEAD, GPU_0, GPU_1]
FIXED = Gate(
    nodes=(
        ExpectedNode("head"),
        ExpectedNode("gpu-0", "gpu", 4, 2),
        ExpectedNode("gpu-1", "gpu", 4, 2),
    )
)


def answered(node: Node, *, isolated: bool = False, **facts: Any) -> Answer:
    usual = {
        "ray": "2.60.0",
        "python": "3.11.7",
        "disk": {"free": 50 * GIB, "total": 100 * GIB},
        "shm": {"free": 8 * GIB, "total": 8 * GIB},
        "assigned": [],
        "visible": "",
    }
    return Answer(node, {**usual, **facts}, 0.5, isolated=isolated)


def only(checks: Any) -> Check:
    (check,) = checks
    assert isinstance(check, Check)
    return check


def test_a_missing_node_is_named_with_those_that_are_there() -> None:
    checks = {check.node: check for check in rungs.nodes(FIXED, [HEAD, GPU_0], seconds=60.0)}
    missing = checks["gpu-1"]
    assert (checks["gpu-0"].ok, missing.ok) == (True, False)
    assert missing.detail == "not in the cluster after 60 s; there are gpu-0, head"
    assert missing.hint == "`trainyard cluster.up` starts what is missing, or says why it cannot."


def test_a_node_that_says_nothing_is_named_and_judged_by_nothing_else() -> None:
    silent = Answer(GPU_0, None, 60.0, problem="no answer within 60 s")
    check = only(rungs.task([silent]))
    assert check.detail == "no answer within 60 s"
    assert check.hint == "Look at the node's raylet and worker logs: `trainyard cluster.logs`."
    assert list(rungs.versions([silent], ("2.60.0", "3.11.7"))) == []


def test_a_removed_node_is_not_tested_although_ray_still_lists_it() -> None:
    assert members.declared(replace(FIXED, nodes=(FIXED.nodes or ())[:2]), ALL) == [HEAD, GPU_0]
    assert members.declared(Gate(), ALL) == ALL


def test_a_silent_node_that_ray_calls_dead_by_now_has_left() -> None:
    silent = Answer(GPU_0, None, 24.0, problem="TaskUnschedulableError: lease_id=0300")
    (left,) = rungs.without_gone([silent], [HEAD], Gate())
    assert left.problem == "the node left the cluster during the smoke test"
    assert rungs.without_gone([silent], [HEAD, GPU_0], Gate()) == [silent]
    again = replace(GPU_0, node_id="9")
    assert rungs.without_gone([silent, answered(again)], [HEAD, again], Gate()) == [answered(again)]
    assert (
        rungs.without_gone([Answer(pod("burst-z"), None, 24.0, problem="gone")], [HEAD], GROWING)
        == []
    )


def test_nodes_to_come_are_not_missed_and_live_ones_suffice_without_a_file() -> None:
    gate = Gate(nodes=(ExpectedNode("head"), ExpectedNode("burst-0", optional=True)))
    assert only(rungs.nodes(gate, [HEAD], seconds=0.0)).ok
    assert [check.node for check in rungs.nodes(Gate(), [HEAD, GPU_0], seconds=0.0)] == [
        "head",
        "gpu-0",
    ]
    *_, last = rungs.nodes(Gate(needs={"min_nodes": 3}), [HEAD, GPU_0], seconds=0.0)
    assert (last.ok, last.detail) == (False, "2 nodes, the job needs 3")


def test_another_python_on_a_node_fails_there() -> None:
    answers = [answered(HEAD), answered(GPU_0, python="3.10.4")]
    good, bad = rungs.versions(answers, ("2.60.0", "3.11.7"))
    assert good.ok
    assert bad.detail == "Ray 2.60.0, Python 3.10.4; expected Ray 2.60.0, Python 3.11.7"


@pytest.mark.parametrize(
    ("answer", "gate", "ok", "detail"),
    [
        (answered(HEAD), Gate(), True, "no GPUs declared"),
        (
            answered(HEAD),
            Gate(needs={"gpus": True}),
            False,
            "the job needs GPUs, and no node has any",
        ),
        (
            answered(GPU_0, nvidia_smi={"count": 2}),
            FIXED,
            True,
            "2 declared, and counted by Ray and nvidia-smi",
        ),
        (answered(GPU_0, nvidia_smi={"count": 1}), FIXED, False, "2 declared, nvidia-smi counts 1"),
        (answered(GPU_0, nvidia_smi={"error": "not installed"}), FIXED, False, "not installed"),
        (
            answered(GPU_0),
            replace(FIXED, simulated_gpus=True),
            True,
            "2, simulated; nvidia-smi not asked",
        ),
    ],
)
def test_declared_and_found_gpus_must_agree(
    answer: Answer, gate: Gate, ok: bool, detail: str
) -> None:
    check = only(gpu_rungs.gpus([answer], gate))
    assert (check.ok, check.detail) == (ok, detail)


@pytest.mark.parametrize(
    ("torch", "ok", "detail"),
    [
        (
            {"version": "2.5", "count": 2, "wrong": []},
            True,
            "torch 2.5, 2 GPUs, matrix products correct",
        ),
        ({"version": "2.5", "count": 0, "wrong": []}, False, "torch 2.5 sees 0 GPUs, Ray 2"),
        ({"version": "2.5", "count": 2, "wrong": [1]}, False, "wrong matrix product on GPU 1"),
        ({"error": "no kernel image"}, False, "no kernel image"),
        ({"missing": True}, True, "not importable on this node"),
    ],
)
def test_torch_must_see_the_gpus_and_multiply(torch: dict[str, Any], ok: bool, detail: str) -> None:
    check = only(gpu_rungs.torch([answered(GPU_0, torch=torch)], FIXED))
    assert (check.ok, check.detail) == (ok, detail)
    if "missing" in torch:
        assert not only(
            gpu_rungs.torch([answered(GPU_0, torch=torch)], Gate(needs={"torch": True}))
        ).ok


LLVMPIPE = {"name": "llvmpipe", "cpu": True}
L4 = {"name": "NVIDIA L4", "cpu": False}


@pytest.mark.parametrize(
    ("devices", "capabilities", "model", "detail"),
    [
        ([L4, LLVMPIPE], "all", "NVIDIA L4", None),
        ([L4], "all", "NVIDIA GB10", None),
        ([], "all", "NVIDIA L4", "Vulkan finds no device"),
        ([], None, "NVIDIA L4", "Vulkan finds no device"),
        (
            [],
            "compute,utility",
            "NVIDIA L4",
            "Vulkan finds no device: NVIDIA_DRIVER_CAPABILITIES=compute,utility lacks graphics",
        ),
        ([LLVMPIPE], "compute,graphics", "NVIDIA L4", "Vulkan finds only a CPU (llvmpipe)"),
        (
            [{"name": "NVIDIA H100 NVL", "cpu": False}],
            "all",
            "NVIDIA H100 NVL",
            "NVIDIA H100 NVL has no RT cores: Isaac Sim's Kit does not run on it",
        ),
    ],
)
def test_vulkan_must_find_a_rendering_gpu_for_a_job_with_graphics(
    devices: list[dict[str, Any]], capabilities: str | None, model: str, detail: str | None
) -> None:
    found = {"devices": devices, "capabilities": capabilities}
    node = answered(GPU_0, graphics=found, nvidia_smi={"count": 2, "models": [model] * 2})
    check = only(gpu_rungs.graphics([node], Gate(needs={"graphics": True})))
    assert (check.ok, check.detail) == (
        detail is None,
        detail or ", ".join(device["name"] for device in devices),
    )


def test_a_missing_loader_of_vulkan_is_named_with_its_package() -> None:
    found = {
        "error": "OSError: libvulkan.so.1: cannot open shared object file",
        "capabilities": "all",
    }
    check = only(
        gpu_rungs.graphics([answered(GPU_0, graphics=found)], Gate(needs={"graphics": True}))
    )
    assert check.detail == "Vulkan: OSError: libvulkan.so.1: cannot open shared object file"
    assert (
        check.hint
        == "Vulkan's loader is missing: put it into the image (Debian, Ubuntu: libvulkan1)."
    )


@pytest.mark.parametrize(
    "model", ["Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-80GB", "NVIDIA H200", "NVIDIA GB200"]
)
def test_gpus_that_only_compute_are_named(model: str) -> None:
    found = {"devices": [], "capabilities": "compute,utility"}
    node = answered(GPU_0, graphics=found, nvidia_smi={"count": 2, "models": [model] * 2})
    assert "no RT cores" in only(gpu_rungs.graphics([node], Gate(needs={"graphics": True}))).detail


def test_a_cpu_renders_for_simulated_gpus_and_nodes_without_are_not_asked() -> None:
    gate = Gate(simulated_gpus=True, needs={"graphics": True})
    node = answered(GPU_0, graphics={"devices": [LLVMPIPE], "capabilities": None})
    head, gpu = gpu_rungs.graphics([answered(HEAD), node], gate)
    assert (head.skipped, gpu.ok, gpu.detail) == (True, True, "llvmpipe")
    assert list(gpu_rungs.graphics([node], Gate())) == []
    assert not only(gpu_rungs.gpus([answered(HEAD)], gate)).ok


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
    assert only(gpu_rungs.isolation([answered(GPU_0, isolated=True, **facts)], Gate())).ok is ok
    assert (
        only(gpu_rungs.isolation([answered(GPU_0, **facts)], Gate())).detail
        == "all GPUs are in use"
    )


def held(*visible: str) -> tuple[dict[str, Any], ...]:
    return tuple({"assigned": [gpu], "visible": gpu, "met": True} for gpu in visible)


@pytest.mark.parametrize(
    ("each", "ok", "detail"),
    [
        (held("1", "0"), True, "2 concurrent 1-GPU tasks see GPU 0, 1, one each"),
        ((), True, "a 1-GPU task sees GPU 0 only"),
        (
            held("0", "0"),
            False,
            "2 tasks that run at the same time see GPU 0, 0: a GPU is shared",
        ),
        (
            ({"assigned": ["0"], "visible": "0,1"},),
            False,
            "a task with GPU ['0'] sees CUDA_VISIBLE_DEVICES='0,1'",
        ),
        (({"problem": "boom"},), False, "a task with a GPU did not run while the others ran: boom"),
    ],
)
def test_tasks_on_all_gpus_of_a_node_each_see_their_own(each: Any, ok: bool, detail: str) -> None:
    answer = replace(answered(GPU_0, isolated=True, assigned=["0"], visible="0"), each=each)
    check = only(gpu_rungs.isolation([answer], FIXED))
    assert (check.ok, check.detail) == (ok, detail)


def test_a_full_disk_and_a_small_shm_fail_and_a_job_may_ask_for_more() -> None:
    tight = {"free": 10 * 2**20, "total": 64 * 2**20}
    disk, shm = rungs.space([answered(HEAD, disk=tight, shm=tight)], Gate())
    assert (disk.ok, disk.detail) == (False, "10 MiB free of 64 MiB")
    assert (shm.ok, shm.hint) == (
        False,
        "Make room in /dev/shm (Docker: --shm-size): at least 64 MiB must be free.",
    )
    assert not next(rungs.space([answered(HEAD)], Gate(needs={"min_disk": 60 * GIB}))).ok


def test_a_broken_connection_between_two_nodes_is_named() -> None:
    results: dict[str, dict[str, Any]] = {
        "head": {"gpu-0": {"rate": 90.0}},
        "gpu-0": {"head": {"error": "GetTimeoutError after 30 s"}},
    }
    good, bad = rungs.transfer(results, 1.0)
    assert good.detail == "90 MB/s from gpu-0"
    assert (bad.node, bad.detail) == ("gpu-0", "nothing from head: GetTimeoutError after 30 s")


LISTING = """\
GPU 0: NVIDIA L4 (UUID: GPU-1111)
  MIG 1g.5gb Device 0: (UUID: MIG-aaaa)
GPU 1: NVIDIA L4 (UUID: GPU-2222)
GPU 10: NVIDIA L4 (UUID: GPU-3333)
"""


@pytest.mark.parametrize(
    ("visible", "count"),
    [(None, 3), ("0", 1), ("0,10", 2), ("GPU-2222", 1), ("1, GPU-3333", 2), ("", 0), ("7", 0)],
)
def test_only_the_gpus_of_the_node_are_counted(visible: str | None, count: int) -> None:
    assert gpu_models(LISTING, visible=visible) == ["NVIDIA L4"] * count


def test_gpus_with_unified_memory_are_counted_too() -> None:
    assert gpu_models("GPU 0: Orin (nvgpu) (UUID: [N/A])\n", visible=None) == ["Orin (nvgpu)"]


def asks(**more: Any) -> Task:
    return Task(index=0, name="t", command=("true",), env={}, **more)


LARGER = Gate(nodes=(ExpectedNode("big-0", "big", 64, 8, optional=True),))
LARGEST = "the largest node has 4 CPUs, 2 GPUs"


@pytest.mark.parametrize(
    ("task", "gate", "refusal"),
    [
        (asks(), Gate(), None),
        (asks(gpus=2), Gate(), None),
        (asks(gpus=0.5, cpus=0), Gate(), None),
        (asks(memory=8 * GIB, node_group="gpu"), Gate(), None),
        (asks(node_name="gpu-1"), Gate(), None),
        (asks(cpus=0), Gate(), None),
        (asks(gpus=8), LARGER, None),
        (asks(gpus=3), Gate(), f"task 't' asks for 1 CPU, 3 GPUs; {LARGEST}"),
        (
            asks(cpus=5, node_name="gpu-0"),
            Gate(),
            f"task 't' asks for 5 CPUs, node gpu-0; {LARGEST}",
        ),
        (
            asks(cpus=3, node_group="cpu"),
            Gate(),
            "task 't' is to run on group cpu; the groups are head, gpu",
        ),
        (asks(memory=32 * GIB), Gate(), f"task 't' asks for 1 CPU, 32 GiB; {LARGEST}, 8 GiB"),
        (
            asks(node_name="x"),
            Gate(),
            "task 't' is to run on node x; the nodes are head, gpu-0, gpu-1",
        ),
    ],
)
def test_a_task_fits_or_is_refused_with_its_request(
    task: Task, gate: Gate, refusal: str | None
) -> None:
    check = room([task], gate, ALL, together=False)
    assert check is not None
    assert (check.ok, None if check.ok else check.detail) == (refusal is None, refusal)


def test_a_host_with_several_nodes_is_no_node() -> None:
    here = [replace(node, host_name="robot-7") for node in ALL]
    check = room([asks(node_name="robot-7")], Gate(), here, together=False)
    assert check is not None
    assert (
        check.detail == "task 't' is to run on node robot-7; 3 nodes match that: head, gpu-0, gpu-1"
    )
    alone = room([asks(node_name="robot-7", gpus=1)], Gate(), here[1:2], together=False)
    assert alone is not None and alone.ok


def test_a_gang_must_fit_as_a_whole() -> None:
    gang = [asks(gpus=1) for _ in range(5)]
    fits, too_many = (
        room(gang[:4], Gate(), ALL, together=True),
        room(gang, Gate(), ALL, together=True),
    )
    assert fits is not None and too_many is not None
    assert fits.ok
    assert too_many.detail == "5 tasks that run together do not fit on 3 nodes at once"


# Clusters on which a replaced node gets another name.


def pod(name: str, **resources: float) -> Node:
    return Node(name, name, name.partition("-")[0], "192.0.2.2", {"CPU": 2, **resources})


def renamed(*nodes: ExpectedNode) -> Gate:
    return Gate(nodes=(ExpectedNode("head", "head"), *nodes), names_change=True)


ONE = renamed(ExpectedNode("gpu-a", "gpu", 2, 1))
TWO = renamed(ExpectedNode("gpu-a", "gpu", 2, 1), ExpectedNode("gpu-b", "gpu", 2, 1))
GROWING = renamed(
    ExpectedNode("burst-a", "burst", 2),
    ExpectedNode("burst-?2", "burst", 2, optional=True),
    ExpectedNode("burst-?3", "burst", 2, optional=True),
)
STAND_IN = renamed(
    ExpectedNode("burst-a", "burst"), ExpectedNode("burst-b", "burst", optional=True)
)


@pytest.mark.parametrize(
    ("gate", "alive", "missing"),
    [
        (TWO, ["gpu-a", "gpu-c"], []),
        (TWO, ["gpu-c"], ["gpu-b"]),
        (TWO, ["cpu-x", "gpu-a"], ["gpu-b"]),
        (replace(TWO, names_change=False), ["gpu-a", "gpu-c"], ["gpu-b"]),
        (GROWING, ["burst-z"], []),
        (GROWING, [], ["burst-a"]),
        (STAND_IN, ["burst-b"], []),
    ],
)
def test_any_node_of_a_group_stands_for_another_unless_names_stay(
    gate: Gate, alive: list[str], missing: list[str]
) -> None:
    assert [node.name for node in members.missing(gate, [HEAD, *map(pod, alive)])] == missing


def test_nodes_that_were_added_since_are_tested_too() -> None:
    added, theirs = pod("burst-z"), pod("other-a")
    assert members.declared(GROWING, [HEAD, pod("burst-a"), added, theirs]) == [
        HEAD,
        pod("burst-a"),
        added,
    ]


def test_a_gang_counts_with_nodes_not_there_yet_and_no_more() -> None:
    for alive, count in (([], 2), (["burst-a"], 2), (["burst-x", "burst-y", "burst-z"], 0)):
        assert len(members.later(GROWING, [HEAD, *map(pod, alive)])) == count
    tasks = [asks(cpus=2, node_group="burst") for _ in range(4)]
    fits = [room(tasks[:count], GROWING, [HEAD, pod("burst-a")], together=True) for count in (3, 4)]
    assert [check and check.ok for check in fits] == [True, False]


def test_a_node_without_a_name_of_its_own_has_its_groups_gpus() -> None:
    assert [members.gpus(TWO, node) for node in (pod("gpu-z", GPU=2), HEAD)] == [1, 0]
    assert members.gpus(Gate(), pod("gpu-z", GPU=2)) == 2


def test_a_task_for_a_node_name_that_changes_gets_the_hint_of_groups() -> None:
    check = room([asks(node_name="gpu-0")], TWO, [HEAD, pod("gpu-a")], together=False)
    assert check is not None
    assert check.hint == (
        "Nodes of this cluster get their names as they are made: say `node: {group: ...}` in the "
        "job file."
    )


@pytest.mark.parametrize(
    ("task", "gate", "alive", "seconds"),
    [
        (asks(gpus=1), ONE, [], rooms.RECREATED),
        # Too large for what may return, another group, or a name that no later node will have.
        (asks(gpus=2), TWO, ["gpu-b"], rooms.LEAST),
        (asks(gpus=1, node_group="cpu"), TWO, ["gpu-b"], rooms.LEAST),
        (asks(gpus=1, node_name="gpu-a"), ONE, [], rooms.LEAST),
        (asks(gpus=1), replace(TWO, names_change=False), [], rooms.LEAST),
        (asks(gpus=4), TWO, ["gpu-x", "gpu-y"], rooms.LEAST),
        (asks(cpus=2, node_group="burst"), GROWING, ["burst-a"], math.inf),
    ],
)
def test_a_node_is_waited_for_as_long_as_it_may_take_to_come(
    task: Task, gate: Gate, alive: list[str], seconds: float
) -> None:
    assert rooms.patience(task, gate, [HEAD, *map(pod, alive)]) == seconds


def test_a_waiting_task_names_the_node_that_is_missing() -> None:
    assert (
        rooms.missing(asks(gpus=1), ONE, [HEAD])
        == "the node that was lost has not been replaced yet"
    )
    burst = asks(cpus=2, node_group="burst")
    assert (
        rooms.missing(burst, GROWING, [HEAD])
        == "Ray's autoscaler has not added a node with that yet"
    )
    assert rooms.without_growth(asks(gpus=1, node_group="gpu"), ONE, [HEAD]) == rooms.RECREATED
