"""A Ray cluster on Kubernetes that somebody else made, without KubeRay even: a service, pods behind it, a Secret."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.bed.kubernetes import KubeBed
from tests.real.kube import RAY_IMAGE, yard
from tests.real.yard import Yard, wait_until

NAMESPACE = "theirs"
CLUSTER = """
name: {name}
backend: existing
existing: {{service: theirs/%s, token_secret: %s}}
"""
MADE_BY_HAND = """
apiVersion: v1
kind: Namespace
metadata: {name: theirs}
---
apiVersion: v1
kind: Secret
metadata: {name: team-token, namespace: theirs}
stringData: {auth_token: not-ours-to-know}
---
apiVersion: v1
kind: Service
metadata: {name: team-head, namespace: theirs}
spec:
  clusterIP: None
  selector: {team: head}
  ports: [{name: dashboard, port: 8265, targetPort: web}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: team-head, namespace: theirs}
spec:
  selector: {matchLabels: {team: head}}
  template:
    metadata: {labels: {team: head}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: ray
        image: IMAGE
        command: [ray, start, --head, --block, --num-cpus=1, --dashboard-host=0.0.0.0]
        env:
        - {name: RAY_AUTH_MODE, value: token}
        - {name: RAY_AUTH_TOKEN, valueFrom: {secretKeyRef: {name: team-token, key: auth_token}}}
        ports: [{name: web, containerPort: 8265}]
        readinessProbe: {tcpSocket: {port: web}, periodSeconds: 1}
        resources: {limits: {memory: 2Gi}, requests: {memory: 1Gi, cpu: 100m}}
"""


@pytest.fixture(scope="module")
def theirs(kube: KubeBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeBed]:
    kube.publish(RAY_IMAGE)
    kube.apply(MADE_BY_HAND.replace("IMAGE", f"{kube.registry}/{RAY_IMAGE}"))
    lab = _ours(kube, tmp_path_factory.mktemp("theirs"))
    try:
        _wait_for_head(kube)
        # A head answers before it knows its own node.
        wait_until(lambda: lab.json("cluster.status")["state"] == "up", seconds=60, what="their Ray has a node")
        yield kube
    finally:
        kube.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def _ours(kube: KubeBed, home: Path, *, service: str = "team-head", secret: str = "team-token") -> Yard:
    made = yard(kube, home, "lab")
    made.write_cluster(CLUSTER % (service, secret))
    return made


def test_it_is_checked_proven_and_left_alone(theirs: KubeBed, tmp_path: Path) -> None:
    lab = _ours(theirs, tmp_path)
    before = _objects(theirs)
    steps = lab.json("cluster.up")["steps"]
    assert [(step["title"], step["changed"]) for step in steps] == [("Ray answers: theirs/team-head", False)]
    status = lab.json("cluster.status")
    assert (status["state"], len(status["nodes"])) == ("up", 1)
    assert status["tunnel"] == "service team-head in namespace theirs of context bed"
    assert lab.json("smoke.run")["ok"] is True
    lab.run("cluster.down")
    assert _objects(theirs) == before
    assert not lab.state.exists()


def test_open_keeps_the_way_until_ctrl_c_and_the_token_is_nowhere(theirs: KubeBed, tmp_path: Path) -> None:
    lab = _ours(theirs, tmp_path)
    process = lab.start("cluster.open", "--json")
    try:
        assert process.stdout
        said = ""
        while "open until Ctrl-C" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        address = json.loads(said[said.index("{") : said.rindex("}") + 1])["address"]
        answer = httpx.get(f"{address}/api/version", timeout=20, trust_env=False)
        assert answer.status_code == 401
    finally:
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
    assert "Traceback" not in rest
    assert "not-ours-to-know" not in said + rest
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/api/version", trust_env=False)


def test_a_head_that_was_replaced_is_found_again(theirs: KubeBed, tmp_path: Path) -> None:
    lab = _ours(theirs, tmp_path)
    theirs.kubectl("delete", "pods", "-n", NAMESPACE, "-l", "team=head", "--wait=true")
    assert lab.json("cluster.status")["state"] in ("down", "up", "partial")
    _wait_for_head(theirs)
    wait_until(lambda: lab.json("cluster.status")["state"] == "up", seconds=60, what="its successor answers")


def test_what_is_not_there_is_told_by_name(theirs: KubeBed, tmp_path: Path) -> None:
    misspelt = _ours(theirs, tmp_path / "service", service="team-haed")
    missing = misspelt.run("smoke.run", expect=3).stderr
    assert "there is no service team-haed\n" in missing
    assert misspelt.json("cluster.status")["state"] == "down"
    without = _ours(theirs, tmp_path / "secret", secret="nobodys").run("cluster.up", expect=3)
    assert "the cluster's token is expected in Secret nobodys, key auth_token, which is not there" in without.stderr


def _wait_for_head(kube: KubeBed) -> None:
    kube.kubectl("rollout", "status", "-n", NAMESPACE, "deployment/team-head", "--timeout=180s", seconds=200)


def _objects(kube: KubeBed) -> list[str]:
    kinds = "pods,services,secrets,configmaps,deployments,persistentvolumeclaims,serviceaccounts"
    done = kube.kubectl("get", kinds, "-n", NAMESPACE, "-o", "name")
    return sorted(done.stdout.split())
