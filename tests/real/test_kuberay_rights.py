"""Ray clusters by somebody who has one namespace of a Kubernetes and nothing else; KubeRay is an administrator's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed.kubernetes import KubeBed
from tests.real import kube as kubernetes
from tests.real.jobs import newest, write_job
from tests.real.kube import RAY_IMAGE
from tests.real.yard import Yard

pytestmark = pytest.mark.breaking
SPACE = "mine"
CLUSTER = {
    "head": {"cpus": 0, "memory": "1GiB"},
    "workers": [{"name": "cpu", "count": 1, "cpus": 1, "memory": "512MiB"}],
}


@pytest.fixture(scope="module")
def config(kube: KubeBed) -> Iterator[Path]:
    """Give a kubeconfig for one namespace."""
    kube.publish(RAY_IMAGE)
    yield kube.restricted(SPACE)
    kube.kubectl("delete", "namespace", SPACE)


@pytest.fixture(scope="module")
def theirs(kube: KubeBed, config: Path) -> Iterator[None]:
    """Have KubeRay there."""
    with kubernetes.operator(kube):
        yield


@pytest.fixture
def nobody(kube: KubeBed, config: Path, tmp_path: Path) -> Yard:
    """Give a place to work in without a cluster."""
    yard = kubernetes.yard(kube, tmp_path, "mine", kubeconfig=config)
    kubernetes.write(kube, yard, CLUSTER, namespace=SPACE)
    return yard


@pytest.fixture(scope="module")
def mine(kube: KubeBed, config: Path, theirs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Give a cluster in that namespace, and see that nothing but it came and went."""
    before = kubernetes.general(kube)
    yard = kubernetes.yard(kube, tmp_path_factory.mktemp("mine"), "mine", kubeconfig=config)
    kubernetes.write(kube, yard, CLUSTER, namespace=SPACE)
    try:
        yard.run("cluster.up")
        yield yard
    finally:
        yard.run("cluster.down", "--end-runs")
    assert kubernetes.belongings(kube, "mine") == []
    assert kubernetes.general(kube) == before
    assert not yard.state.exists()


def test_who_may_not_install_kuberay_is_told_that_it_is_missing(nobody: Yard, kube: KubeBed) -> None:
    refused = nobody.run("cluster.up", expect=3)
    assert "KubeRay" in refused.stderr
    assert kubernetes.belongings(kube, "mine") == []


def test_a_namespace_is_enough_to_train_in(mine: Yard, kube: KubeBed) -> None:
    assert set(mine.states().values()) == {"up"}
    assert len(mine.states()) == 2
    assert mine.json("smoke.run")["ok"]
    write_job(mine, "where", "command: [hostname]\nresources: {cpus: 1}\n")
    mine.run("train.dispatch", "where")
    pods = kubernetes.pods(kube, "mine", namespace=SPACE)
    (pod,) = (pod["metadata"]["name"] for node, pod in pods.items() if node != "head")
    assert (newest(mine) / "logs" / "where.1.log").read_text() == f"{pod}\n"
    assert kubernetes.listed(mine)["mine"] == "up"
    assert {line.split()[0] for line in mine.run("cluster.logs", "--no-follow").stdout.splitlines()} == set(pods)
    verified = mine.json("image.verify")
    assert verified["ok"]
    assert "you may not list the Kubernetes nodes" in verified["remark"]
    theirs = {"service": f"{SPACE}/mine-head-svc", "token_secret": "mine"}
    file = {"name": "theirs", "backend": "existing", "existing": theirs}
    (mine.home / "clusters" / "theirs.yaml").write_text(json.dumps(file))
    assert mine.json("cluster.status", "-f", "theirs")["state"] == "up"
    (mine.home / "clusters" / "theirs.yaml").unlink()


def test_a_worker_that_is_lost_comes_back(mine: Yard, kube: KubeBed) -> None:
    (worker,) = (node for node in mine.states() if node != "head")
    pod = kubernetes.pods(kube, "mine", namespace=SPACE)[worker]["metadata"]["name"]
    kube.kubectl("delete", "pod", pod, "-n", SPACE, "--force", "--grace-period=0")
    mine.run("cluster.up")
    assert set(mine.states().values()) == {"up"}
    assert worker not in mine.states()


def test_up_again_and_scale_need_no_more_rights(mine: Yard, kube: KubeBed) -> None:
    kubernetes.settled(kube, SPACE)
    before = kubernetes.versions(kube, SPACE, ",".join(kubernetes.KINDS))
    assert not any(step["changed"] for step in mine.json("cluster.up")["steps"])
    assert kubernetes.versions(kube, SPACE, ",".join(kubernetes.KINDS)) == before
    mine.run("cluster.scale", "cpu=0")
    assert list(kubernetes.pods(kube, "mine", namespace=SPACE)) == ["head"]
    mine.run("cluster.up")
    assert len(mine.states()) == 2


def test_another_namespace_is_refused_by_the_right_that_is_missing(mine: Yard) -> None:
    refused = mine.run("cluster.up", "--set", "name=other", "--set", "kuberay.namespace=default", expect=3)
    assert "namespace default" in refused.stderr
    assert set(mine.states().values()) == {"up"}


def test_purge_leaves_what_only_others_may_remove(mine: Yard, kube: KubeBed) -> None:
    theirs = [one for one in kubernetes.general(kube) if f" {SPACE}/" not in one]
    purged = mine.run("cluster.down", "--purge")
    assert "Leave the KubeRay operator: who made it cannot be told" in purged.stderr
    assert f"Leave namespace {SPACE}: Trainyard did not make it" in purged.stderr
    assert kubernetes.belongings(kube, "mine") == []
    assert kubernetes.general(kube) == theirs
