"""From a cluster file to processes of this machine: facts in, commands and records out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.test_single_host import CPU, GIBIBYTE, plans_of, spec_of
from trainyard.backends.local import machine, node_processes
from trainyard.backends.local.naming import ClusterFiles
from trainyard.backends.local.node_processes import Ports, node_environment, ray_arguments
from trainyard.backends.shared import ray_nodes
from trainyard.backends.shared.ray_nodes import NodePlan
from trainyard.errors import PrerequisiteError
from trainyard.seams.processes import ProcessId

PORTS = Ports(gcs=40001, dashboard=40002)


def _environment(plan: NodePlan, environ: dict[str, str]) -> dict[str, str]:
    return node_environment(ClusterFiles(Path("/state")), plan, environ, programs=Path("/venv/bin"))


def test_the_head_is_on_loopback_and_a_worker_joins_with_name_and_group() -> None:
    worker = {"name": "cpu", "count": 2, "cpus": 3, "memory": "1GiB"}
    plans = plans_of(spec_of(head={"cpus": 2, "memory": "4GiB"}, workers=[worker]))
    head, last = (ray_arguments(plan, PORTS) for plan in (plans[0], plans[2]))
    assert head[:2] == ["--node-name=head", "--labels=ray.io/node-group=head"]

    assert {
        "--num-cpus=2",
        "--num-gpus=0",
        "--memory=4294967296",
        "--object-store-memory=1073741824",
    } < set(head)

    listening = {"--head", "--port=40001", "--dashboard-port=40002", "--dashboard-host=127.0.0.1"}
    assert listening | {"--node-ip-address=127.0.0.1"} < set(head)
    assert {
        "--node-name=cpu-1",
        "--labels=ray.io/node-group=cpu",
        "--num-cpus=3",
        "--address=127.0.0.1:40001",
    } < set(last)


def test_simulated_gpus_are_numbers_that_hide_no_device() -> None:
    spec = spec_of(workers=[{"name": "gpu", "count": 1, "gpus": 4}])
    worker = plans_of(spec, "0", simulated=True)[1]
    assert (worker.gpus, worker.gpu_ids) == (4, None)
    assert "CUDA_VISIBLE_DEVICES" not in _environment(worker, {"CUDA_VISIBLE_DEVICES": "0"})


def test_a_node_inherits_no_settings_and_gets_the_path_of_the_token() -> None:
    head = plans_of(spec_of(env={"NCCL_DEBUG": "WARN"}))[0]
    environ = {
        "PATH": "/usr/bin",
        "RAY_ADDRESS": "elsewhere",
        "RAY_AUTH_TOKEN": "secret",
        "TRAINYARD_RUN": "x",
    }

    assert _environment(head, environ) == {
        "PATH": "/venv/bin:/usr/bin",
        "NCCL_DEBUG": "WARN",
        "TMPDIR": str(ClusterFiles(Path("/state")).node_temp("head") / "tmp"),
        "CUDA_VISIBLE_DEVICES": "",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "TRAINYARD_NODE": ClusterFiles(Path("/state")).marker("head"),
        **ray_nodes.variables(head, token_file="/state/token"),
    }


def test_too_little_memory_is_reported_with_its_remedy() -> None:
    with pytest.raises(PrerequisiteError) as raised:
        machine.check(3, memory=GIBIBYTE // 2)
    assert str(raised.value) == (
        "too little memory: 0.5 GiB free, Ray's own processes need 1.2 GiB\n  -> Free memory, or "
        "ask for fewer nodes."
    )


def test_records_are_read_as_they_were_written_the_head_first(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / "lab")
    assert node_processes.read(files) == {}
    files.nodes.mkdir(parents=True)
    plans = {plan.name: plan for plan in plans_of(spec_of(workers=[CPU]))}
    for plan in reversed(plans.values()):
        node_processes.write(files, plan, ProcessId(7, "then"))
    records = node_processes.read(files)
    assert list(records) == ["head", "cpu-0", "cpu-1"]
    assert (records["cpu-0"].process, records["cpu-0"].made_from) == (
        ProcessId(7, "then"),
        plans["cpu-0"].recorded(),
    )


def test_the_socket_path_of_any_node_fits_into_what_the_system_allows(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / ("deep/" * 40) / "lab")
    session = "session_2026-12-31_23-59-59_999999_4194304"
    socket = (
        files.node_temp("a-group-with-a-very-long-name-indeed-9999")
        / session
        / "sockets"
        / "plasma_store"
    )
    # 107 bytes, and a user's number may have 10 digits where this one has fewer
    assert (
        len(str(socket)) + 10 - len(str(files.temp.parent.name.removeprefix("trainyard-"))) <= 107
    )


def test_the_end_of_the_log_is_that_of_the_daemon_that_ended(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / "lab")
    files.nodes.mkdir(parents=True)
    log = files.node_log("head")
    log.write_text("Local node IP: 127.0.0.1\nbind: address already in use\n")
    assert machine.log_tail(files, "head") == (
        log,
        ["Local node IP: 127.0.0.1", "bind: address already in use"],
    )
    assert machine.log_tail(files, "cpu-0")[1] == []
