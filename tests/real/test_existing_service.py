"""A Ray cluster on Kubernetes that somebody else made, without KubeRay even: a service, pods behind it, a Secret."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

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
def lab(kube: KubeBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Give a place to work in with their Ray, which is up."""
    kube.publish(RAY_IMAGE)
    kube.apply(MADE_BY_HAND.replace("IMAGE", f"{kube.registry}/{RAY_IMAGE}"))
    lab = yard(kube, tmp_path_factory.mktemp("theirs"), "lab")
    lab.write_cluster(CLUSTER % ("team-head", "team-token"))
    try:
        _wait_for_head(kube, lab)
        yield lab
    finally:
        kube.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def test_it_is_checked_proven_left_alone_and_found_again_when_it_was_replaced(kube: KubeBed, lab: Yard) -> None:
    before = _objects(kube)
    steps = lab.json("cluster.up")["steps"]
    assert [(step["title"], step["changed"]) for step in steps] == [("Ray answers at theirs/team-head", False)]
    status = lab.json("cluster.status")
    assert (status["state"], len(status["nodes"])) == ("up", 1)
    assert status["tunnel"] == "service team-head in namespace theirs of context bed"
    assert lab.json("smoke.run")["ok"] is True
    lab.run("cluster.down")
    assert _objects(kube) == before
    assert not lab.state.exists()
    kube.kubectl("delete", "pods", "-n", NAMESPACE, "-l", "team=head", "--wait=true")
    assert lab.json("cluster.status")["state"] in ("down", "up", "partial")
    _wait_for_head(kube, lab)


def test_open_keeps_the_way_until_ctrl_c_and_the_token_is_nowhere(lab: Yard) -> None:
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


def test_what_is_not_there_is_told_by_name(lab: Yard) -> None:
    misspelt = str(lab.write_cluster(CLUSTER % ("team-haed", "team-token"), name="misspelt"))
    assert "there is no service team-haed\n" in lab.run("smoke.run", "-f", misspelt, expect=3).stderr
    assert lab.json("cluster.status", "-f", misspelt)["state"] == "down"
    without = str(lab.write_cluster(CLUSTER % ("team-head", "nobodys"), name="without"))
    refused = lab.run("cluster.up", "-f", without, expect=3).stderr
    assert "the cluster's token is expected in Secret nobodys, key auth_token, which is not there" in refused


def _wait_for_head(kube: KubeBed, lab: Yard) -> None:
    kube.kubectl("rollout", "status", "-n", NAMESPACE, "deployment/team-head", "--timeout=180s", seconds=200)
    # A head answers before it knows its own node.
    wait_until(lambda: lab.json("cluster.status")["state"] == "up", seconds=60, what="their Ray has a node")


def _objects(kube: KubeBed) -> list[str]:
    kinds = "pods,services,secrets,configmaps,deployments,persistentvolumeclaims,serviceaccounts"
    done = kube.kubectl("get", kinds, "-n", NAMESPACE, "-o", "name")
    return sorted(done.stdout.split())
