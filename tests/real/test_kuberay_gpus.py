"""GPUs on Kubernetes: the device plugin behaves as NVIDIA's, but has no real GPUs to give."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bed.hosts import Host
from tests.bed.kubernetes import KubeBed
from tests.real import kube as kubernetes
from tests.real.jobs import write_job
from tests.real.kube import GPU_IMAGE
from tests.real.yard import Yard

pytestmark = pytest.mark.breaking
SPACE = "gpus"
LAB = {
    "head": {"cpus": 0, "memory": "1GiB"},
    "workers": [{"name": "gpu", "count": 2, "cpus": 2, "memory": "1GiB", "gpus": 2}],
}
EACH = """
    command: [sh, -c, "echo $(hostname) GPU $CUDA_VISIBLE_DEVICES; sleep 3"]
    matrix: {i: [0, 1, 2, 3]}
    env: {I: "{i}"}
    resources: {cpus: 0.5, gpus: 1}
    """


@pytest.fixture(scope="module")
def machines(kube: KubeBed) -> Iterator[list[Host]]:
    """Give the two hosts that have two GPUs each; the third host has none."""
    kube.publish(GPU_IMAGE)
    machines = kube.hosts[1:]
    for host in machines:
        kube.fake_gpus(host, 2)
    yield machines
    for host in machines:
        kube.no_gpus(host)


@pytest.fixture(scope="module")
def lab(
    kube: KubeBed, operator: None, machines: list[Host], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Yard]:
    """Give a cluster that has all four GPUs."""
    lab = kubernetes.yard(kube, tmp_path_factory.mktemp("gpus"), "gpus")
    kubernetes.write(kube, lab, LAB, namespace=SPACE, image=GPU_IMAGE)
    with lab.up("--purge"):
        yield lab
    assert kubernetes.belongings(kube, "gpus") == []


def test_declared_gpus_are_scheduled_and_every_rung_sees_them(
    lab: Yard, machines: list[Host], kube: KubeBed
) -> None:
    nodes = {node["name"]: node for node in lab.json("cluster.status")["nodes"]}
    workers = {name for name in nodes if name != "head"}
    assert {nodes[name]["host"] for name in workers} == {host.name for host in machines}
    assert {name: node["gpus"] for name, node in nodes.items()} == {
        "head": 0,
        **dict.fromkeys(workers, 2),
    }
    found = lab.json("smoke.run")
    assert found["ok"]
    checks = {(check["name"], check["node"]): check for check in found["checks"]}

    for name in workers:
        host = nodes[name]["host"]
        assert (
            checks["allocatable", name]["detail"]
            == f"Kubernetes node {host} offers 2 nvidia.com/gpu"
        )
        assert checks["gpus", name]["detail"] == "2 declared, and counted by Ray and nvidia-smi"
        assert not checks["isolation", name]["skipped"]

    assert checks["gpus", "head"]["detail"] == "none declared"
    assert ("allocatable", "head") not in checks


def test_a_host_that_lost_its_gpus_stops_every_run(
    lab: Yard, machines: list[Host], kube: KubeBed
) -> None:
    write_job(lab, "each", EACH)
    lost = machines[1]
    kube.no_gpus(lost)

    try:
        smoke = lab.json("smoke.run", expect=5)
        (node,) = (
            node["name"]
            for node in lab.json("cluster.status")["nodes"]
            if node["gpus"] and node["host"] == lost.name
        )

        failed = {
            (check["name"], check["node"]): check["detail"]
            for check in smoke["checks"]
            if not check["ok"]
        }

        said = f"Kubernetes node {lost.name} offers 0 nvidia.com/gpu, and the cluster holds 2 there"
        assert failed["allocatable", node] == said
        before = set(lab.results.glob("*"))
        refused = lab.run("train.dispatch", "each", expect=5)
        assert said in refused.stderr
        assert set(lab.results.glob("*")) == before
    finally:
        kube.fake_gpus(lost, 2)

    assert lab.json("smoke.run")["ok"]
