"""From a cluster file to `ray start`: facts in, commands out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainyard.backends.local.layout import NodePlan, Ports, node_environment, node_plans, ray_start
from trainyard.errors import PrerequisiteError
from trainyard.spec import ClusterSpec

GIBIBYTE = 1024**3
PORTS = Ports(gcs=40001, dashboard=40002)


def _spec(**fields: Any) -> ClusterSpec:
    return ClusterSpec.model_validate({"name": "lab", "backend": "local", **fields})


def _plans(spec: ClusterSpec, gpu_ids: tuple[str, ...] = ()) -> tuple[NodePlan, ...]:
    return node_plans(spec, cpus=8, memory=10 * GIBIBYTE, gpu_ids=gpu_ids)


def _environment(plan: NodePlan, environ: dict[str, str]) -> dict[str, str]:
    return node_environment(
        plan, environ, marker="0a1b/head/", token_file=Path("/state/token"), programs=Path("/venv/bin")
    )


def test_the_head_listens_on_loopback_at_the_ports_that_were_chosen() -> None:
    head = _plans(_spec(head={"cpus": 2, "memory": "4GiB"}))[0]
    assert ray_start(head, PORTS, temp_dir=Path("/tmp/t/h")) == [
        "start",
        "--temp-dir=/tmp/t/h",
        "--node-name=head",
        "--labels=ray.io/node-group=head",
        "--num-cpus=2",
        "--num-gpus=0",
        "--memory=4294967296",
        "--object-store-memory=1073741824",
        "--node-manager-port=0",
        "--object-manager-port=0",
        "--min-worker-port=0",
        "--max-worker-port=0",
        "--dashboard-agent-listen-port=0",
        "--disable-usage-stats",
        "--head",
        "--node-ip-address=127.0.0.1",
        "--port=40001",
        "--include-dashboard=true",
        "--dashboard-host=127.0.0.1",
        "--dashboard-port=40002",
        "--no-monitor",
    ]


def test_a_worker_joins_the_head_under_its_own_name_and_group() -> None:
    worker = _plans(_spec(workers=[{"name": "cpu", "count": 2, "cpus": 3, "memory": "1GiB"}]))[2]
    arguments = ray_start(worker, PORTS, temp_dir=Path("/tmp/t/w"))
    assert arguments[-1] == "--address=127.0.0.1:40001"
    assert {"--node-name=cpu-1", "--labels=ray.io/node-group=cpu", "--num-cpus=3"} < set(arguments)
    assert "--object-store-memory=322122547" in arguments


def test_a_node_that_asks_for_nothing_may_use_the_machine() -> None:
    head = _plans(_spec())[0]
    assert (head.cpus, head.memory, head.object_store) == (8, 10 * GIBIBYTE, GIBIBYTE)


def test_a_head_with_no_cpus_gets_none() -> None:
    assert _plans(_spec(head={"cpus": 0}))[0].cpus == 0


def test_real_gpus_are_split_over_the_nodes_in_order() -> None:
    spec = _spec(head={"gpus": 1}, workers=[{"name": "gpu", "count": 2, "gpus": 2}])
    assert [plan.gpu_ids for plan in _plans(spec, ("0", "1", "2", "3", "6"))] == [("0",), ("1", "2"), ("3", "6")]


def test_a_node_sees_its_own_gpus_only() -> None:
    spec = _spec(workers=[{"name": "gpu", "count": 1, "gpus": 2}])
    head, worker = _plans(spec, ("0", "1"))
    environ = {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert _environment(head, environ)["CUDA_VISIBLE_DEVICES"] == ""
    assert _environment(worker, environ)["CUDA_VISIBLE_DEVICES"] == "0,1"


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
    spec = _spec(workers=[{"name": "gpu", "count": 1, "gpus": 4}], local={"simulated_gpus": True})
    worker = _plans(spec, ("0",))[1]
    assert (worker.gpus, worker.gpu_ids) == (4, None)
    assert "CUDA_VISIBLE_DEVICES" not in _environment(worker, {"CUDA_VISIBLE_DEVICES": "0"})


def test_gpus_that_are_there_are_used_even_if_they_might_be_simulated() -> None:
    spec = _spec(head={"gpus": 1}, local={"simulated_gpus": True})
    assert _plans(spec, ("0",))[0].gpu_ids == ("0",)


def test_a_node_inherits_neither_ray_settings_nor_ours_and_gets_the_path_of_the_token() -> None:
    head = _plans(_spec(env={"NCCL_DEBUG": "WARN"}))[0]
    environ = {"PATH": "/usr/bin", "RAY_ADDRESS": "elsewhere", "RAY_AUTH_TOKEN": "secret", "TRAINYARD_RUN": "x"}
    assert _environment(head, environ) == {
        "PATH": "/venv/bin:/usr/bin",
        "NCCL_DEBUG": "WARN",
        "CUDA_VISIBLE_DEVICES": "",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": "/state/token",
        "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "150",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_JOB_STOP_WAIT_TIME_S": "8",
        "RAY_RUNTIME_ENV_URI_PIN_EXPIRATION_S": "604800",
        "RUNTIME_ENV_RETRY_TIMES": "2",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_enable_autoscaler_v2": "1",
        "RAY_enable_worker_prestart": "1",
        "RAY_grpc_client_keepalive_time_ms": "10000",
        "RAY_grpc_client_keepalive_timeout_ms": "15000",
        "RAY_health_check_initial_delay_ms": "1000",
        "RAY_health_check_period_ms": "1000",
        "TRAINYARD_NODE": "0a1b/head/",
    }


def test_without_a_token_the_mode_is_still_said() -> None:
    environment = _environment(_plans(_spec(auth="none"))[0], {})
    assert environment["RAY_AUTH_MODE"] == "disabled"
    assert "RAY_AUTH_TOKEN_PATH" not in environment


def test_a_plan_is_compared_by_everything_in_it() -> None:
    plan = _plans(_spec())[0]
    assert plan.as_text() == _plans(_spec())[0].as_text()
    assert replace(plan, cpus=1).as_text() != plan.as_text()
