"""Requirements of some sites with Kubernetes: restricted pods, registries with a password."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed import publishing
from tests.bed.engine import BedEngine
from tests.bed.kubernetes import KubeBed
from tests.real import kube as kubernetes
from tests.real import registries
from tests.real.jobs import newest, write_job
from tests.real.kube import RAY_IMAGE
from tests.real.yard import Yard

pytestmark = pytest.mark.breaking
SPACE = "site"
HEAD = {"head": {"cpus": 1, "memory": "1GiB"}}
# An administrator's objects, in a namespace that enforces the Pod Security Standard `restricted`.
STRICT = """
apiVersion: v1
kind: Namespace
metadata: {name: strict, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: trainer, namespace: strict}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: strict}
data: {rate: "0.1"}
---
apiVersion: v1
kind: Secret
metadata: {name: keys, namespace: strict}
stringData: {key: open sesame}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: training}
value: 1000
"""
# Every setting of pods that a cluster file may have, except GPUs.
SAID = {
    **HEAD,
    "kuberay": {
        "security": {
            "restricted": True,
            "run_as_user": 12345,
            "run_as_group": 12345,
            "fs_group": 12345,
        },
        "service_account": "trainer",
        "priority_class": "training",
        "node_selector": {"kubernetes.io/hostname": "host-2"},
        "tolerations": [{"key": "kept-for-training"}],
        "shm_size": "256MiB",
        "volumes": [
            {"target": "/settings", "config_map": "settings", "read_only": True},
            {"target": "/keys", "secret": "keys", "read_only": True},
        ],
        "labels": {"team": "robotics"},
        "annotations": {"example.com/owner": "robotics"},
        "storage": {"size": "1GiB", "access": "ReadWriteOnce"},
        "network_policy": True,
    },
}
LOOK = """
    command: [sh, -c, "id -u; cat /settings/rate; echo; cat /keys/key; echo; touch /outputs/mine; df -m /dev/shm"]
"""


@pytest.fixture
def other(kube: KubeBed, operator: None, tmp_path: Path) -> Iterator[Yard]:
    """Give a place for a cluster in a new namespace; both are removed after the test."""
    kube.kubectl("create", "namespace", SPACE)
    other = kubernetes.yard(kube, tmp_path, "other")
    yield other
    other.run("cluster.down")
    assert kubernetes.belongings(kube, "other") == []
    kube.kubectl("delete", "namespace", SPACE)


def test_all_pod_settings_of_a_file_are_admitted_where_restricted_holds(
    kube: KubeBed, operator: None, tmp_path: Path
) -> None:
    kube.apply(STRICT)
    kube.kubectl("taint", "node", "host-2", "kept-for-training=yes:NoSchedule")
    strict = kubernetes.yard(kube, tmp_path, "strict")
    kubernetes.write(kube, strict, SAID, namespace="strict")

    try:
        strict.run("cluster.up")
        assert kubernetes.hosts_of(kube, "strict", namespace="strict") == {"head": "host-2"}
        pod = kubernetes.pods(kube, "strict", namespace="strict")["head"]
        assert (
            pod["metadata"]["labels"]["team"]
            == pod["metadata"]["annotations"]["example.com/owner"]
            == "robotics"
        )

        assert kubernetes.one(kube, "networkpolicy", "strict-nodes", namespace="strict") is not None
        assert (pod["spec"]["serviceAccountName"], pod["spec"]["priority"]) == ("trainer", 1000)
        write_job(strict, "look", LOOK)
        strict.run("train.dispatch", "look", "--skip-smoke")
        said = (newest(strict) / "logs" / "look.1.log").read_text().splitlines()
        assert said[:3] == ["12345", "0.1", "open sesame"]
        assert said[-1].split()[1] == "256"
        assert not any(step["changed"] for step in strict.json("cluster.up")["steps"])
    finally:
        kube.kubectl("taint", "node", "host-2", "kept-for-training-")
        strict.run("cluster.down")
        kube.kubectl("delete", "priorityclass/training", "namespace/strict")

    assert kubernetes.belongings(kube, "strict") == []


def test_an_image_behind_a_password_is_pulled_with_a_secret(
    other: Yard, kube: KubeBed, engine: BedEngine, tmp_path: Path
) -> None:
    users = {registries.USER: registries.PASSWORD}
    with registries.registry(
        engine, tmp_path / "guarded", host=engine.bridge_ip, users=users, data=publishing.KEPT
    ) as guarded:
        kube.trust_registry(guarded.address)
        login = {"username": registries.USER, "password_env": "SECRET"}
        registry = {"registry": {"address": guarded.address, "insecure": True, **login}}
        file = {**HEAD, **registry, "image": f"{guarded.address}/{RAY_IMAGE}"}
        kubernetes.write(kube, other, file, namespace=SPACE)
        other.environ["SECRET"] = registries.PASSWORD
        other.run("cluster.up")
        secret = kubernetes.one(kube, "secret", "other.pull", namespace=SPACE)
        assert secret is not None
        assert secret["type"] == "kubernetes.io/dockerconfigjson"
        verified = other.json("image.verify")
        assert [one["ok"] for one in verified["hosts"]] == [True, True, True]
        assert not any(step["changed"] for step in other.json("cluster.up")["steps"])
        other.environ["SECRET"] = "another"
        refused = other.run("image.verify", expect=6)
        assert f"cannot pull the image {guarded.address}/" in refused.stderr
        assert "Is the login in the cluster file right" in refused.stderr
        assert "another" not in refused.stderr
