"""Clusters, jobs and Sematic's words from Python, without any question to the outside."""

from __future__ import annotations

import doctest
import gc
import importlib
from pathlib import Path
from typing import Literal

import pytest

import trainyard
from tests.unit.fake_programs import FakePrograms
from trainyard import Cluster, Job, versions
from trainyard.errors import NotReadyError, Problem, RequestError
from trainyard.operations.clusters import BILLED
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
def test_docstring_examples_pass_doctest(module: str) -> None:
    done = doctest.testmod(importlib.import_module(f"trainyard.{module}"))
    assert done.attempted
    assert not done.failed


def test_the_package_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Clusters'"):
        _ = trainyard.Clusters  # type: ignore[attr-defined]


def test_a_job_of_keywords_finds_files_from_here_and_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = Job(
        command=["python", "train.py"], runtime_env={"files": ["train.py"], "pip": ["gymnasium"]}
    )
    assert job.spec.runtime_env.files == (str(tmp_path / "train.py"),)
    assert job.spec.runtime_env.pip == ("gymnasium",)
    directory = job.directory
    assert list(directory.iterdir()) == []
    del job
    gc.collect()
    assert not directory.exists()


def test_files_of_a_jobs_runtime_env_are_those_of_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job").mkdir()
    (tmp_path / "requirements.txt").write_text("of-the-project\n")
    (tmp_path / "job/requirements.txt").write_text("of-the-job\n")
    job = Job(command=["true"], directory="job", runtime_env={"pip": "requirements.txt"})
    assert job.spec.runtime_env.pip == ("of-the-job",)


def test_all_that_is_wrong_with_a_job_is_said_at_once() -> None:
    with pytest.raises(RequestError) as caught:
        Job(name="no name", command=["true"], retries=-1, timeout=5)
    assert [problem.where for problem in caught.value.problems] == [
        "Job",
        "Job: retries",
        "Job: timeout",
    ]


def test_one_override_may_be_text(tmp_path: Path) -> None:
    assert Cluster.from_file("demo", set="workers.0.count=1").spec.workers[0].count == 1
    (tmp_path / "job.yaml").write_text("command: ['true']\n")
    assert Job.from_directory(tmp_path, set="retries=3").spec.retries == 3


@pytest.mark.parametrize(
    ("forward_logs", "of_job", "of_sweep"),
    [(None, "[a] x\n", ""), (True, "[a] x\n", "[a] x\n"), (False, "", "")],
)
def test_output_of_sweep_trainings_is_shown_only_on_request(
    forward_logs: bool | None, of_job: str, of_sweep: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster.from_file("demo", forward_logs=forward_logs)
    for sweep, shown in ((False, of_job), (True, of_sweep)):
        cluster._screen(sweep=sweep).output("a", b"x\n")
        assert capsys.readouterr().out == shown


def test_a_sweep_is_not_dispatched_and_another_job_not_tuned() -> None:
    space = {"space": {"x": {"uniform": [0, 1]}}, "metric": "reward", "mode": "max", "samples": 4}
    cluster = Cluster.from_file("demo")
    with pytest.raises(RequestError, match="is a sweep"):
        cluster.dispatch(Job(command=["echo", "{x}"], tune=space))
    with pytest.raises(RequestError, match="has no `tune:`"):
        cluster.tune(Job(command=["true"]))


@pytest.mark.parametrize("teardown", ["made", "never"])
def test_billed_instances_are_reported_only_if_they_are_kept(
    teardown: Literal["made", "never"],
) -> None:
    class Failing(Cluster):
        def _exists(self) -> bool:
            return False

        def up(self, *, timeout: float | None = None) -> None:
            raise NotReadyError(
                "no worker came",
                problems=(Problem(BILLED, "i-1"), Problem("worker", "no capacity")),
            )

        def down(self, *, end_runs: bool = False) -> None:
            """Leave nothing."""

    with pytest.raises(NotReadyError) as caught, Failing.from_file("demo", teardown=teardown):
        pass

    assert len(caught.value.problems) == (1 if teardown == "made" else 2)


def test_a_program_of_sematics_needs_no_cluster_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRAINYARD_CLUSTER", raising=False)
    monkeypatch.chdir(tmp_path)
    node = RayNodeConfig(cpu=1, memory_gb=1)
    assert RayCluster(config=SimpleRayCluster(n_nodes=1, node_config=node)).spec.backend == "local"
    with pytest.raises(RequestError, match="no cluster file here"):
        Cluster.from_file()


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
    half = RayNodeConfig(cpu=1.5, memory_gb=2)
    spec = RayCluster(RayClusterConfig(half, groups, versions.RAY, scaler), name="mine").spec
    (grows,) = spec.workers
    assert (grows.least, grows.most, grows.gpus) == (0, 4, 1)
    assert (spec.kuberay.autoscaler.cpus, spec.kuberay.autoscaler.memory) == (1, 1024**3)
    assert (spec.head.cpus, spec.kuberay.groups["head"].requests.cpus) == (2, 1.5)


def test_sematics_arguments_have_its_order_and_its_class() -> None:
    scaler = AutoscalerConfig(cpu=1, memory_gb=1)
    config = SimpleRayCluster(2, NODE, 4, versions.RAY, scaler)
    assert config == RayClusterConfig(NODE, config.scaling_groups, versions.RAY, scaler)
    with pytest.raises(RequestError, match=r"ray_version is 2\.4\.0"):
        SimpleRayCluster(2, NODE, 4, "2.4.0", scaler)
    cluster = RayCluster(config, file="kuberay", activation_timeout_seconds=1800)
    assert isinstance(cluster, RayCluster) and isinstance(cluster, Cluster)
    assert (cluster.config, cluster.activation_timeout_seconds) == (config, 1800)


def test_sematic_s_timeout_is_the_deadline_unless_the_file_has_one() -> None:
    config = SimpleRayCluster(n_nodes=2, node_config=RayNodeConfig(cpu=1, memory_gb=2))
    waits = RayCluster(
        config, file="kuberay", activation_timeout_seconds=1800
    ).spec.kuberay.wait_for_machines
    says = {"kuberay.wait_for_machines": "5m"}
    assert (waits, RayCluster(config, file="kuberay", set=says).spec.kuberay.wait_for_machines) == (
        1800,
        300,
    )
    # These come by no autoscaler.
    assert RayCluster(config, file="microk8s").spec.kuberay.wait_for_machines is None


def test_gpus_that_this_machine_lacks_are_left_out(
    monkeypatch: pytest.MonkeyPatch, started: FakePrograms
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nvidia_smi = (0, "0, GPU-a\n1, GPU-b\n2, GPU-c")
    started.answer(nvidia_smi, nvidia_smi)
    cluster = RayCluster(SimpleRayCluster(n_nodes=4, node_config=NODE, max_nodes=4), file="demo")
    assert [node.gpus for node in cluster.spec.nodes()] == [1, 0, 0, 0]
    fits = RayCluster(SimpleRayCluster(n_nodes=3, node_config=NODE), file="demo")
    assert [node.gpus for node in fits.spec.nodes()] == [1, 1, 1]


def test_a_cluster_that_cannot_grow_has_its_least_number_of_nodes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    node = RayNodeConfig(cpu=1, memory_gb=1)
    cluster = RayCluster(SimpleRayCluster(n_nodes=2, node_config=node, max_nodes=5), file="demo")
    assert [node.name for node in cluster.spec.nodes()] == ["head", "worker-group-0-0"]
    assert (
        "note: a cluster on local does not grow: each group gets its min_workers\n"
        in capsys.readouterr().err
    )


def test_a_python_shell_completes_what_the_package_offers() -> None:
    assert dir(trainyard) == ["Cluster", "Job", "Run", "__version__"]


def test_sematics_defaults_are_kept_and_what_cannot_be_is_refused_at_once() -> None:
    config = RayClusterConfig(
        head_node=NODE, scaling_groups=[ScalingGroup(NODE)], ray_version=versions.RAY
    )
    assert config.keys()["workers"][0]["count"] == 1
    with pytest.raises(RequestError, match=r"ray_version is 2\.4\.0, and nodes have Ray"):
        RayClusterConfig(head_node=NODE, ray_version="2.4.0")
    with pytest.raises(RequestError, match="n_nodes=0"):
        SimpleRayCluster(0, NODE)
    with pytest.raises(RequestError, match="n_nodes=3, max_nodes=2"):
        SimpleRayCluster(3, NODE, max_nodes=2)
