"""Whether Kubernetes still has the GPUs of a cluster."""

from __future__ import annotations

from typing import Any

from trainyard_runner.wire.events import Check

from tests.unit.fake_kube import FakeKube, location, named
from trainyard.backends.kuberay.snapshot import cluster_pods
from trainyard.backends.kuberay.status import DEVICE_PLUGIN, gpu_checks
from trainyard.seams.kube.types import NODE, POD, Object


def pod(name: str, *, gpus: int = 1, phase: str = "Running") -> Object:
    made = named(f"lab-gpu-worker-{name}", cluster="lab", ray="lab")
    made["metadata"]["labels"] |= {"ray.io/group": "gpu", "ray.io/node-type": "worker"}
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}
    containers = [{"name": "ray-worker", "resources": {"limits": limits}}]
    return {
        **made,
        "spec": {"nodeName": "host-2", "containers": containers},
        "status": {"phase": phase},
    }


def kubernetes(*made: Object, offers: int = 2, **more: Any) -> FakeKube:
    node = {
        "metadata": {"name": "host-2"},
        "status": {"allocatable": {"nvidia.com/gpu": str(offers)}},
    }
    return FakeKube((NODE, node), *[(POD, each) for each in made], **more)


def checked(kube: FakeKube) -> tuple[Check, ...]:
    return gpu_checks(location(kube), cluster_pods(location(kube)))


def test_a_host_that_lost_a_gpu_fails_for_every_pod_that_holds_some_there() -> None:
    detail = "Kubernetes node host-2 offers 1 nvidia.com/gpu, and the cluster holds 2 there"
    hint = DEVICE_PLUGIN.format(host="host-2")
    assert checked(kubernetes(pod("a"), pod("b"), offers=1)) == (
        Check("allocatable", "gpu-a", False, detail, hint=hint),
        Check("allocatable", "gpu-b", False, detail, hint=hint),
    )


def test_a_forbidden_gpu_check_is_skipped_and_does_not_fail() -> None:
    (found,) = checked(kubernetes(pod("a"), forbidden=["nodes"]))
    assert found == Check("allocatable", "gpu-a", True, "ops may not get nodes", skipped=True)
