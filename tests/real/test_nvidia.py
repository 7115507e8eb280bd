"""No driver, no toolkit: two different things, each with its fix."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.bed import nvidia as standin
from tests.bed.engine import BedEngine
from tests.bed.host import DockerHost
from trainyard.backends.compose.machine import gpu_ids
from trainyard.errors import PrerequisiteError
from trainyard.seams.docker.engine import connect

real_gpu = pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine has a driver")


def _refused(engine: BedEngine, path: str) -> list[str]:
    with connect({"DOCKER_HOST": engine.address, "PATH": path}) as docker, pytest.raises(PrerequisiteError) as refused:
        gpu_ids(docker, 2)
    return refused.value.lines()


@real_gpu
def test_a_host_without_nvidia_smi_has_no_driver(engine: BedEngine) -> None:
    assert _refused(engine, os.environ["PATH"]) == [
        "the cluster wants 2 GPUs, and the Docker host has no working NVIDIA driver",
        "  at Docker host here: nvidia-smi is not installed",
        "  -> Install the driver, restart the host, and look: nvidia-smi. Or, to try the layout without GPUs, write "
        "`compose: {simulated_gpus: true}`.",
    ]


def test_a_driver_without_the_toolkit_is_told_with_the_package_to_install(engine: BedEngine, tmp_path: Path) -> None:
    standin.driver(tmp_path, gpus=2)
    said = _refused(engine, f"{tmp_path}:{os.environ['PATH']}")
    assert said[0] == "the driver is there, but NVIDIA's container toolkit is not: no container can be given a GPU"
    assert "nvidia-container-toolkit" in said[2]


def test_a_driver_with_the_toolkit_gives_its_gpus(engine: BedEngine, tmp_path: Path) -> None:
    standin.driver(tmp_path, gpus=2)
    standin.toolkit(tmp_path)
    with connect({"DOCKER_HOST": engine.address, "PATH": f"{tmp_path}:{os.environ['PATH']}"}) as docker:
        assert gpu_ids(docker, 2) == ("0", "1")


def test_a_remote_docker_host_is_asked_over_ssh(docker_host: DockerHost, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in docker_host.environ().items():
        monkeypatch.setenv(name, value)
    with connect(dict(os.environ), address=docker_host.ssh) as docker, pytest.raises(PrerequisiteError) as refused:
        gpu_ids(docker, 1)
    assert refused.value.lines()[:2] == [
        "the cluster wants 1 GPU, and the Docker host has no working NVIDIA driver",
        f"  at Docker host {docker_host.ip}: nvidia-smi is not installed",
    ]
