"""From a cluster file to processes of this machine: facts in, commands out; which stay, which go, which are started."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainyard import steps, versions
from trainyard.backends import ray_nodes, replace_head
from trainyard.backends.contract import Tools
from trainyard.backends.local import diagnosis, record, snapshot
from trainyard.backends.local.desired import Ports, node_environment, ray_start
from trainyard.backends.local.naming import ClusterFiles
from trainyard.backends.local.preflight import Machine, check
from trainyard.backends.local.record import ClusterRecord, NodeRecord
from trainyard.backends.local.up import up_steps
from trainyard.backends.ray_nodes import NodePlan, Room
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.seams import processes
from trainyard.seams.processes import ProcessId
from trainyard.spec import ClusterSpec

GIBIBYTE = 1024**3
PORTS = Ports(gcs=40001, dashboard=40002)
CPU = {"name": "cpu", "count": 2, "cpus": 1}
ALL = frozenset({"head", "cpu-0", "cpu-1"})
GOOD = Machine(
    memory_free=8 * GIBIBYTE,
    disk_free=50 * GIBIBYTE,
    shared_memory_free=8 * GIBIBYTE,
    open_files=65536,
    ray=versions.RAY,
)


def _spec(**fields: Any) -> ClusterSpec:
    return ClusterSpec.model_validate({"name": "lab", "backend": "local", **fields})


def _plans(spec: ClusterSpec, gpu_ids: tuple[str, ...] = (), *, simulated: bool = False) -> tuple[NodePlan, ...]:
    room = Room(8, 10 * GIBIBYTE, gpu_ids)
    return ray_nodes.node_plans(spec, room, simulated=simulated, machine="this machine")


def _environment(plan: NodePlan, environ: dict[str, str]) -> dict[str, str]:
    return node_environment(
        plan, environ, marker="0a1b/head/", token_file=Path("/state/token"), programs=Path("/venv/bin")
    )


def test_the_head_listens_on_loopback_and_a_worker_joins_it_under_its_own_name_and_group() -> None:
    worker = {"name": "cpu", "count": 2, "cpus": 3, "memory": "1GiB"}
    plans = _plans(_spec(head={"cpus": 2, "memory": "4GiB"}, workers=[worker]))
    head, last = (ray_start(plan, PORTS, temp_dir=Path("/tmp/t")) for plan in (plans[0], plans[2]))
    assert head[:8] == [
        "start",
        "--temp-dir=/tmp/t",
        "--node-name=head",
        "--labels=ray.io/node-group=head",
        "--num-cpus=2",
        "--num-gpus=0",
        "--memory=4294967296",
        "--object-store-memory=1073741824",
    ]
    listening = {"--head", "--port=40001", "--dashboard-port=40002", "--dashboard-host=127.0.0.1"}
    assert listening | {"--node-ip-address=127.0.0.1"} < set(head)
    assert {"--node-name=cpu-1", "--labels=ray.io/node-group=cpu", "--num-cpus=3"} < set(last)
    assert last[-1] == "--address=127.0.0.1:40001"


def test_real_gpus_are_split_over_the_nodes_in_order() -> None:
    spec = _spec(head={"gpus": 1}, workers=[{"name": "gpu", "count": 2, "gpus": 2}])
    assert [plan.gpu_ids for plan in _plans(spec, ("0", "1", "2", "3", "6"))] == [("0",), ("1", "2"), ("3", "6")]


def test_more_gpus_than_there_are_is_an_error_that_names_both_ways_out() -> None:
    spec = _spec(workers=[{"name": "gpu", "count": 2, "gpus": 1}])
    with pytest.raises(PrerequisiteError) as raised:
        _plans(spec, ("0",))
    assert str(raised.value) == (
        "the cluster file wants 2 GPUs, this machine has 1\n"
        "  at gpu-0: 1, gpu-1: 1\n"
        "  -> Want fewer, or write `local: {simulated_gpus: true}` to try the layout without them."
    )


def test_simulated_gpus_are_numbers_that_hide_no_device() -> None:
    spec = _spec(workers=[{"name": "gpu", "count": 1, "gpus": 4}])
    worker = _plans(spec, ("0",), simulated=True)[1]
    assert (worker.gpus, worker.gpu_ids) == (4, None)
    assert "CUDA_VISIBLE_DEVICES" not in _environment(worker, {"CUDA_VISIBLE_DEVICES": "0"})


def test_a_node_inherits_neither_ray_settings_nor_ours_and_gets_the_path_of_the_token() -> None:
    head = _plans(_spec(env={"NCCL_DEBUG": "WARN"}))[0]
    environ = {"PATH": "/usr/bin", "RAY_ADDRESS": "elsewhere", "RAY_AUTH_TOKEN": "secret", "TRAINYARD_RUN": "x"}
    found = _environment(head, environ)
    assert found.keys().isdisjoint({"RAY_ADDRESS", "RAY_AUTH_TOKEN", "TRAINYARD_RUN"})
    assert found == {
        "PATH": "/venv/bin:/usr/bin",
        "NCCL_DEBUG": "WARN",
        "CUDA_VISIBLE_DEVICES": "",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "TRAINYARD_NODE": "0a1b/head/",
        **ray_nodes.variables(head, token_file="/state/token"),
    }


def test_a_node_that_asks_for_nothing_may_use_the_machine_and_one_without_cpus_gets_none() -> None:
    head = _plans(_spec())[0]
    assert (head.cpus, head.memory, head.object_store) == (8, 10 * GIBIBYTE, GIBIBYTE)
    assert _plans(_spec(head={"cpus": 0}))[0].cpus == 0


def test_a_machine_is_warned_about_only_if_shared_memory_is_little() -> None:
    plans = _plans(_spec(workers=[CPU]))
    assert check(plans, GOOD) == check(plans, replace(GOOD, shared_memory_free=None)) == []
    assert check(plans, replace(GOOD, shared_memory_free=64 * 1024**2)) == [
        "shared memory has 0.1 GiB free, the nodes may use 3.0 GiB: large objects will be slow"
    ]


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (
            replace(GOOD, ray="2.9.3"),
            f"the local backend needs ray {versions.RAY}, and ray 2.9.3 is installed in this Python\n"
            f"  -> Install it: python -m pip install 'ray[default]=={versions.RAY}'",
        ),
        (
            replace(GOOD, memory_free=GIBIBYTE // 2),
            "too little memory: 0.5 GiB free, Ray's own processes need 1.2 GiB\n  -> Free some, or want fewer nodes.",
        ),
        (
            replace(GOOD, open_files=256),
            "a process may open 256 files here; Ray needs 1024\n"
            "  -> Raise the limit: ulimit -Hn 1024 (as root), or in /etc/security/limits.conf",
        ),
    ],
    ids=["another ray", "memory", "open files"],
)
def test_what_a_machine_lacks_is_said_with_what_to_do(machine: Machine, message: str) -> None:
    with pytest.raises(PrerequisiteError) as raised:
        check(_plans(_spec(workers=[CPU])), machine)
    assert str(raised.value) == message


def _recorded(*, gcs_port: int = 1000) -> dict[str, NodeRecord]:
    return {
        plan.name: NodeRecord(plan.name, plan.group, 1, 0, plan.as_text(), gcs_port, ProcessId(7, "then"))
        for plan in _plans(_spec(workers=[CPU]))
    }


@pytest.mark.parametrize(
    ("fields", "running", "missing", "surplus"),
    [
        ({}, ALL, [], []),
        ({}, ALL - {"cpu-1"}, ["cpu-1"], ["cpu-1"]),
        ({"workers": [{**CPU, "count": 1}]}, ALL, [], ["cpu-1"]),
        ({"workers": [{**CPU, "count": 3}]}, ALL, ["cpu-2"], []),
        ({"workers": [{**CPU, "cpus": 4}]}, ALL, ["cpu-0", "cpu-1"], ["cpu-0", "cpu-1"]),
        # No worker outlives its head.
        ({}, ALL - {"head"}, ["head", "cpu-0", "cpu-1"], ["head", "cpu-0", "cpu-1"]),
        ({"head": {"cpus": 2}}, ALL, ["head", "cpu-0", "cpu-1"], ["head", "cpu-0", "cpu-1"]),
    ],
)
def test_nodes_are_compared_with_what_runs(
    fields: dict[str, Any], running: frozenset[str], missing: list[str], surplus: list[str]
) -> None:
    difference = snapshot.compare(_plans(_spec(**{"workers": [CPU], **fields})), _recorded(), running=running)
    assert (list(difference.missing), list(difference.surplus)) == (missing, surplus)


def test_a_worker_of_an_earlier_head_is_replaced() -> None:
    recorded = {**_recorded(gcs_port=2000), "head": _recorded()["head"]}
    difference = snapshot.compare(_plans(_spec(workers=[CPU])), recorded, running=ALL)
    assert difference.surplus == ("cpu-0", "cpu-1")


def test_records_are_read_as_they_were_written_the_head_first(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / "lab")
    assert (record.read_nodes(files), record.read(files, "local")) == ({}, None)
    files.nodes.mkdir(parents=True)
    for plan in reversed(_plans(_spec(workers=[CPU]))):
        record.write_node(files, plan, gcs_port=1000, process=ProcessId(7, "then"))
    found = record.read_nodes(files)
    assert list(found) == ["head", "cpu-0", "cpu-1"]
    assert found["cpu-0"].process == ProcessId(7, "then")
    cluster = ClusterRecord("lab", Ports(1, 2), True, "token")
    record.write(files, "local", cluster)
    assert record.read(files, "local") == cluster


def test_the_socket_path_of_any_node_fits_into_what_the_system_allows(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / ("deep/" * 40) / "lab")
    session = "session_2026-12-31_23-59-59_999999_4194304"
    socket = files.node_temp("a-group-with-a-very-long-name-indeed-9999") / session / "sockets" / "plasma_store"
    # 107 bytes, and a user's number may have 10 digits where this one has fewer
    assert len(str(socket)) + 10 - len(str(files.temp.parent.name.removeprefix("trainyard-"))) <= 107


def test_the_end_of_the_log_is_that_of_the_daemon_that_ended(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / "lab")
    files.nodes.mkdir(parents=True)
    files.node_log("head").write_text("Local node IP: 127.0.0.1\nbind: address already in use\n")
    assert diagnosis.log_tail(files, "head") == (
        files.node_log("head"),
        ["Local node IP: 127.0.0.1", "bind: address already in use"],
    )
    assert diagnosis.log_tail(files, "cpu-0")[1] == ["(it said nothing)"]


def test_a_repair_names_the_nodes_that_it_starts(tmp_path: Path) -> None:
    def start_titles() -> list[str]:
        stage = up_steps(lab, Tools(tmp_path, {}, "local"))[0]
        return [step.title for step in stage.expand() if step.title.startswith("Start")]

    lab = _spec(head={"cpus": 1, "memory": "1GiB"}, workers=[{**CPU, "memory": "1GiB"}])
    assert start_titles() == ["Start the head and 2 workers"]
    files = ClusterFiles(tmp_path)
    files.prepare()
    alive = processes.identify(os.getpid())
    assert alive is not None
    for plan in _plans(lab)[:2]:
        record.write_node(files, plan, gcs_port=1000, process=alive)
    assert start_titles() == ["Start cpu-1"]


def test_another_head_is_planned_with_what_differs_and_refused() -> None:
    old = _plans(_spec(head={"cpus": 1}))[0]
    new = _plans(_spec(head={"cpus": 2}, env={"NAME": "secret"}))[0]
    changes = ray_nodes.changes(json.loads(old.as_text()), new)
    step = replace_head.step(replace_head.refusal(changes))
    (planned,) = steps.plan([step])
    assert (planned.title, planned.detail) == (
        "Replace the head that runs",
        "needs --recreate, which ends everything on the cluster: cpus: 1 now, 2 wanted; env.NAME is new",
    )
    with pytest.raises(RequestError) as caught:
        step.do()
    assert caught.value.lines() == [
        "the head in the cluster file is not the head that runs; to replace it ends everything on the cluster",
        "  at cpus: 1 now, 2 wanted; env.NAME is new",
        "  -> If that is meant: invoke cluster.up --recreate",
    ]
