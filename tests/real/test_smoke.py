"""smoke.run on a real cluster: the rungs that it passes, leaves out and refuses."""

from __future__ import annotations

import os

import pytest
from trainyard_runner.node import facts

from tests.bed.places import need
from tests.real.jobs import events, newest, write_job
from tests.real.yard import Yard


@pytest.mark.core
def test_a_good_cluster_passes_every_rung_that_it_claims(yard: Yard) -> None:
    found = yard.json("smoke.run")
    assert found["ok"] is True
    checks = {(check["name"], check["node"]): check for check in found["checks"]}
    assert all(check["ok"] for check in checks.values())
    assert set(found["checks"][0]) == {"name", "node", "ok", "skipped", "detail", "seconds", "hint"}
    for node in ("head", "gpu-0", "gpu-1"):
        for rung in ("nodes", "task", "versions", "transfer", "disk", "shm"):
            assert not checks[rung, node]["skipped"]
    assert checks["gpus", "gpu-0"]["detail"] == "2, simulated; nvidia-smi not asked"
    assert checks["isolation", "gpu-1"]["detail"].endswith("one each (simulated)")
    assert checks["torch", "head"]["skipped"]
    assert checks["dashboard", None]["detail"].endswith("refuses without the token")


@pytest.fixture
def vulkan() -> None:
    """Require Vulkan's real loader, and Mesa's driver that renders on the CPU."""
    need(["vulkaninfo"])


@pytest.mark.usefixtures("vulkan")
def test_vulkan_answers_on_every_gpu_node_for_a_job_that_renders(yard: Yard) -> None:
    write_job(yard, "renders", "command: ['true']\nsmoke: {graphics: true, transfer: false}\n")
    yard.run("train.dispatch", "renders")
    checks = [
        event
        for event in events(newest(yard))
        if event["event"] == "check" and event["name"] == "graphics"
    ]
    assert {check["node"]: check["skipped"] for check in checks} == {
        "head": True,
        "gpu-0": False,
        "gpu-1": False,
    }
    assert all(check["detail"].startswith("llvmpipe") for check in checks if not check["skipped"])


@pytest.mark.usefixtures("vulkan")
def test_a_loader_without_drivers_finds_no_device() -> None:
    environ = {
        **os.environ,
        "VK_ICD_FILENAMES": "/nowhere.json",
        "NVIDIA_DRIVER_CAPABILITIES": "utility",
    }
    assert facts.vulkan(60, environ) == {"devices": [], "capabilities": "utility"}
