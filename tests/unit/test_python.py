"""Clusters, jobs and Sematic's words from Python, as far as they ask nobody."""

from __future__ import annotations

import doctest
import gc
import importlib
from pathlib import Path
from typing import Any

import pytest

import trainyard
from trainyard import Cluster, Job
from trainyard.errors import RequestError
from trainyard.sematic import (
    AutoscalerConfig,
    RayCluster,
    RayClusterConfig,
    RayNodeConfig,
    ScalingGroup,
    SimpleRayCluster,
)

NODE = RayNodeConfig(cpu=2, memory_gb=4, gpu_count=1)


@pytest.mark.parametrize("module", ["api.cluster", "api.job", "sematic"])
def test_what_docstrings_show_is_so(module: str) -> None:
    done = doctest.testmod(importlib.import_module(f"trainyard.{module}"))
    assert done.attempted
    assert not done.failed


def test_the_package_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Clusters'"):
        _ = trainyard.Clusters  # type: ignore[attr-defined]


def test_a_cluster_of_keywords_is_one_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text("name: lab\nbackend: local\nhead: {memory: 2GiB}\nworkers: [{name: cpu, count: 3}]\n")
    keys: dict[str, Any] = {
        "name": "lab",
        "backend": "local",
        "head": {"memory": "2GiB"},
        "workers": ({"name": "cpu"},),
    }
    assert Cluster(**keys, set={"workers.cpu.count": 3}).spec == Cluster.from_file(file).spec


def test_a_job_of_keywords_finds_files_from_here_and_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = Job(command=["python", "train.py"], runtime_env={"files": ["train.py"], "pip": ["gymnasium"]})
    assert job.spec.runtime_env.files == (str(tmp_path / "train.py"),)
    assert job.spec.runtime_env.pip == ("gymnasium",)
    directory = job.directory
    assert list(directory.iterdir()) == []
    del job
    gc.collect()
    assert not directory.exists()


def test_all_that_is_wrong_with_a_job_is_said_at_once() -> None:
    with pytest.raises(RequestError) as caught:
        Job(name="no name", command=["true"], retries=-1, timeout=5)
    assert [problem.where for problem in caught.value.problems] == ["Job", "Job: retries", "Job: timeout"]


def test_one_override_may_be_text(tmp_path: Path) -> None:
    assert Cluster.from_file("demo", set="workers.0.count=1").spec.workers[0].count == 1
    (tmp_path / "job.yaml").write_text("command: ['true']\n")
    assert Job.from_directory(tmp_path, set="retries=3").spec.retries == 3


@pytest.mark.parametrize(
    ("timeout", "why"),
    [
        ("soon", "timeout must be a duration such as 90s, 5m, .* got 'soon'"),
        (-1, "timeout must not be negative, got -1"),
        (float("nan"), "timeout must not be negative, got nan"),
    ],
)
def test_a_timeout_is_seconds_or_a_duration(timeout: float | str, why: str) -> None:
    Cluster(name="lab", backend="local", timeout="5m")
    with pytest.raises(RequestError, match=why):
        Cluster(name="lab", backend="local", timeout=timeout)
    with pytest.raises(RequestError, match=why):
        RayCluster(SimpleRayCluster(1, NODE), activation_timeout_seconds=timeout)


@pytest.mark.parametrize(
    ("forward_logs", "of_job", "of_sweep"),
    [(None, "[a] x\n", ""), (True, "[a] x\n", "[a] x\n"), (False, "", "")],
)
def test_what_trainings_of_a_sweep_print_is_shown_where_it_is_asked_for(
    forward_logs: bool | None, of_job: str, of_sweep: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(name="lab", backend="local", forward_logs=forward_logs)
    for sweep, shown in ((False, of_job), (True, of_sweep)):
        cluster._screen(sweep=sweep).output("a", b"x\n")
        assert capsys.readouterr().out == shown


def test_what_is_no_job_is_named() -> None:
    with pytest.raises(RequestError, match=r"a job is Job\(...\) or a directory, got dict"):
        Cluster(name="lab", backend="local").dispatch({"command": ["true"]})  # type: ignore[arg-type]


def test_a_sweep_is_not_dispatched_and_another_job_not_tuned() -> None:
    space = {"space": {"x": {"uniform": [0, 1]}}, "metric": "reward", "mode": "max", "samples": 4}
    cluster = Cluster(name="lab", backend="local")
    with pytest.raises(RequestError, match="is a sweep"):
        cluster.dispatch(Job(command=["echo", "{x}"], tune=space))
    with pytest.raises(RequestError, match="has no `tune:`"):
        cluster.tune(Job(command=["true"]))


def test_sematics_shapes_are_cluster_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_CLUSTER", "kuberay")
    cluster = RayCluster(config=SimpleRayCluster(n_nodes=3, node_config=NODE))
    file = Cluster.from_file("kuberay")
    assert (cluster.spec.backend, cluster.spec.image) == (file.spec.backend, file.spec.image)
    assert cluster.name.startswith("ray-")
    assert [(node.name, node.cpus, node.memory, node.gpus) for node in cluster.spec.nodes()] == [
        ("head", 2, 4 * 1024**3, 1),
        ("worker-group-0-0", 2, 4 * 1024**3, 1),
        ("worker-group-0-1", 2, 4 * 1024**3, 1),
    ]
    scaler = AutoscalerConfig(cpu=1, memory_gb=1)
    groups = [ScalingGroup(NODE, min_workers=0, max_workers=4), ScalingGroup(NODE, 0, 0)]
    (grows,) = RayCluster(RayClusterConfig(NODE, groups, scaler), name="mine").spec.workers
    assert (grows.least, grows.most, grows.gpus) == (0, 4, 1)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: RayNodeConfig(cpu=1, memory_gb=1.9), "Ray workers/head must have at least 2GiB of memory"),
        (lambda: SimpleRayCluster(2, NODE, max_nodes=3), "would require autoscaling, but no AutoscalerConfig is"),
        (lambda: SimpleRayCluster(3, NODE, max_nodes=2), "max_nodes must be equal to or greater than n_nodes"),
        (lambda: SimpleRayCluster(0, NODE), "n_nodes must be at least 1"),
        (lambda: ScalingGroup(NODE, min_workers=-1, max_workers=0), "min_workers must be non-negative"),
        (lambda: AutoscalerConfig(cpu=0.1, memory_gb=1), "at least 0.5 CPUs and 1GiB of memory"),
        (lambda: RayCluster(SimpleRayCluster(1, NODE), backend="nowhere"), "the cluster file is wrong"),
        (lambda: RayCluster(SimpleRayCluster(1, NODE), file="existing"), "is run by somebody else"),
    ],
)
def test_what_sematic_refuses_is_refused(make: object, what: str) -> None:
    with pytest.raises(RequestError, match=what):
        make()  # type: ignore[operator]
