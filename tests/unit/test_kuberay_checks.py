"""Whether Kubernetes still has the GPUs of a cluster, and its pods see them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.fake_kube import FakeKube, location, named
from trainyard.backends.kuberay import gpu_checks
from trainyard.endpoint import BackendCheck
from trainyard.errors import NotReadyError
from trainyard.seams.kube.types import NODE, POD, Object
from trainyard.seams.programs import Ran
from trainyard.spec.cluster import ClusterSpec

LISTED = "GPU 0: NVIDIA X (UUID: GPU-1)\nGPU 1: NVIDIA X (UUID: GPU-2)\n"


def pod(name: str, *, gpus: int = 2, host: str = "host-2", phase: str = "Running") -> Object:
    one = named(f"lab-gpu-worker-{name}", cluster="lab", ray="lab")
    one["metadata"]["labels"] |= {"ray.io/group": "gpu", "ray.io/node-type": "worker"}
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}
    containers = [{"name": "ray-worker", "resources": {"limits": limits}}]
    return {**one, "spec": {"nodeName": host, "containers": containers}, "status": {"phase": phase}}


def kubernetes(*made: Object, offers: int = 2, ran: Ran | Exception | None = None, **more: Any) -> FakeKube:
    node = {"metadata": {"name": "host-2"}, "status": {"allocatable": {"nvidia.com/gpu": str(offers)}}}
    kube = FakeKube((NODE, node), *[(POD, one) for one in made], **more)

    def answer(*given: object) -> Ran:
        if isinstance(ran, Exception):
            raise ran
        return ran or Ran(0, LISTED, "")

    kube.runs = answer
    return kube


def checked(kube: FakeKube, *, gpus: int = 2, **section: Any) -> tuple[BackendCheck, ...]:
    workers = [{"name": "gpu", "gpus": gpus}]
    asked = {"name": "lab", "backend": "kuberay", "workers": workers, "kuberay": section}
    found = gpu_checks.checks(location(kube, **section), ClusterSpec.model_validate(asked))
    return tuple(replace(check, seconds=0.0) for check in found)


def test_before_a_run_no_pod_is_asked() -> None:
    def refuse(*_: object) -> Ran:
        raise AssertionError("a program was run in a pod")

    kube = kubernetes(pod("a"), offers=1)
    kube.runs = refuse
    asked = {"name": "lab", "backend": "kuberay", "workers": [{"name": "gpu", "gpus": 2}]}
    (found,) = gpu_checks.quick_checks(location(kube), ClusterSpec.model_validate(asked))
    assert (found.name, found.ok) == ("allocatable", False)


def test_nothing_is_asked_without_gpus_or_with_simulated_ones() -> None:
    kube = FakeKube(forbidden=["pods", "nodes"])
    assert checked(kube, gpus=0) == ()
    assert checked(kube, simulated_gpus=True) == ()


def test_pods_that_do_not_run_or_have_none_are_left_out() -> None:
    assert checked(kubernetes(pod("a", phase="Pending"), pod("b", gpus=0))) == ()


def test_a_node_that_lost_a_gpu_fails_for_every_pod_that_holds_some_there() -> None:
    found = checked(kubernetes(pod("a", gpus=1), pod("b", gpus=1), offers=1, ran=Ran(0, LISTED.splitlines()[0], "")))
    detail = "Kubernetes node host-2 offers 1 nvidia.com/gpu, and the cluster holds 2 there"
    hint = gpu_checks.DEVICE_PLUGIN.format(host="host-2")
    assert found[:2] == (
        BackendCheck("allocatable", "gpu-a", False, detail, hint=hint),
        BackendCheck("allocatable", "gpu-b", False, detail, hint=hint),
    )
    assert [one.ok for one in found[2:]] == [True, True]


@pytest.mark.parametrize(
    ("ran", "detail"),
    [
        (Ran(0, LISTED.splitlines()[0], ""), "nvidia-smi in pod lab-gpu-worker-a lists 1 of 2 GPUs"),
        (
            Ran(9, "NVIDIA-SMI has failed\nmore\n", ""),
            "nvidia-smi in pod lab-gpu-worker-a: exit code 9, NVIDIA-SMI has failed",
        ),
        (
            Ran(127, "", "/bin/sh: exec: nvidia-smi: not found"),
            "nvidia-smi in pod lab-gpu-worker-a: exit code 127, /bin/sh: exec: nvidia-smi: not found",
        ),
        (NotReadyError("it hangs"), "nvidia-smi cannot be run in pod lab-gpu-worker-a: it hangs"),
    ],
)
def test_a_pod_that_does_not_see_its_gpus_fails(ran: Ran | Exception, detail: str) -> None:
    found = checked(kubernetes(pod("a"), ran=ran))[1]
    assert (found.name, found.ok, found.detail) == ("pod", False, detail)
    assert found.hint == (
        "Does `nvidia-smi` work on host host-2 itself? A pod that lost its GPUs gets them back when it is made anew: "
        "kubectl -n team delete pod lab-gpu-worker-a"
    )


def test_what_may_not_be_asked_is_no_failure() -> None:
    found = checked(kubernetes(pod("a"), forbidden=["nodes"]))
    assert found[0] == BackendCheck("allocatable", "gpu-a", True, "ops may not get nodes", skipped=True)
