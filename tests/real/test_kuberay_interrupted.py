"""Interrupt `cluster.up` again and again: it ends in one good cluster, with nothing made twice."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bed.kubernetes import KubeBed
from tests.real import kube as kubernetes
from tests.real.kube import RAY_IMAGE
from tests.real.yard import Yard, while_up
from trainyard.backends.kuberay import naming

NAME = "cut"
SPACE = "cut-short"
OPERATOR = "kuberay-system"
LAB = {
    "head": {"cpus": 1, "memory": "1GiB"},
    "workers": [{"name": "cpu", "count": 1, "cpus": 1, "memory": "512MiB"}],
    "kuberay": {"storage": {"size": "1GiB", "access": "ReadWriteOnce"}},
}


@pytest.fixture
def cut(kube: KubeBed, tmp_path: Path) -> Iterator[Yard]:
    """Give a place to work with a cluster's file, on a Kubernetes without KubeRay."""
    kube.publish(RAY_IMAGE)
    yard = kubernetes.yard(kube, tmp_path, NAME)
    kubernetes.write(kube, yard, LAB, namespace=SPACE)
    yield yard
    yard.run("cluster.down", "--purge")
    assert kubernetes.belongings(kube, NAME) == []


def test_up_killed_or_interrupted_in_a_step_continues_to_one_good_cluster(
    kube: KubeBed, cut: Yard
) -> None:
    seen: set[str] = set()
    moments: dict[str, Callable[[], bool]] = {
        "one CRD is there": lambda: _count(kube, "crd") >= 1,
        "Helm has begun": lambda: _count(kube, "secrets", "-n", OPERATOR, "-l", "owner=helm") >= 1,
        "the RayCluster is there": lambda: _count(kube, "rayclusters", "-n", SPACE) == 1,
    }
    for what, came in moments.items():
        up, has_come = while_up(cut, came, lambda up: _kill(up, signal.SIGKILL))
        assert has_come, f"{what} did not come: {up.stdout}"
        _note(kube, seen)

    code, output = _interrupted_at(cut, "  ok  Make the RayCluster")
    assert code == 130, output
    assert "Traceback" not in output
    _note(kube, seen)
    cut.run("cluster.up")
    _assert_good(kube, cut, seen)
    assert len(kubernetes.objects(kube, "secrets", "-A", "-l", "owner=helm")) == 1


def _interrupted_at(yard: Yard, line: str) -> tuple[int, str]:
    """Interrupt `up`, and its children, just after it said a line; return exit code and output."""
    up = yard.start("cluster.up", as_leader=True)
    assert up.stdout is not None
    said = ""
    while line not in said and (more := up.stdout.readline()):
        said += more
    time.sleep(0.5)
    _kill(up, signal.SIGINT)
    rest, _ = up.communicate(timeout=60)
    return up.returncode, said + rest


def _kill(command: subprocess.Popen[str], number: signal.Signals) -> None:
    if command.poll() is None:
        os.killpg(command.pid, number)


def _count(kube: KubeBed, *what: str) -> int:
    return len(kubernetes.objects(kube, *what))


def _note(kube: KubeBed, seen: set[str]) -> None:
    """Add to `seen` the objects of which a cluster has one each: none may be made a second time."""
    for kind in ("rayclusters", "secrets", "persistentvolumeclaims"):
        for one in kubernetes.objects(kube, kind, "-n", SPACE, "-l", naming.of_cluster(NAME)):
            seen.add(f"{kind}/{one['metadata']['name']}/{one['metadata']['uid']}")


def _assert_good(kube: KubeBed, yard: Yard, seen: set[str]) -> None:
    states = yard.states()
    assert sorted(states.values()) == ["up", "up"], states
    pods = kubernetes.uids(kube, NAME, namespace=SPACE)
    assert len(pods) == 2
    # One token, one claim, one RayCluster: each is still the one that the first command made.
    assert sorted(one.split("/")[0] for one in seen) == [
        "persistentvolumeclaims",
        "rayclusters",
        "secrets",
    ], seen

    operators = kubernetes.objects(
        kube, "deployments", "-A", "-l", "app.kubernetes.io/name=kuberay-operator"
    )
    assert len(operators) == 1
    yard.run("cluster.up")
    assert kubernetes.uids(kube, NAME, namespace=SPACE) == pods
