"""The way to another user's cluster on Kubernetes: its service, pods and Secret."""

from __future__ import annotations

import base64
from typing import Any, cast

import pytest

from tests.unit.fake_kube import FakeKube
from trainyard.backends.existing import service as services
from trainyard.backends.existing.service import Service
from trainyard.errors import TrainyardError
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.types import POD, SECRET, SERVICE, Kind, Object

HAS_NO = "service lab-head-svc has no"
LEADS_NOWHERE = "of service lab-head-svc leads to no port of its pods; the service has"
UNNAMED = {"port": 8265, "targetPort": "web"}
PORTS = [{"port": 8265, "targetPort": "dashboard"}, {"port": 10001}]


def service(*objects: tuple[Kind, Object], port: int = 8265) -> Service:
    return Service(cast(Kube, FakeKube(*objects)), "team", "lab-head-svc", port)


def svc(**spec: Any) -> tuple[Kind, Object]:
    spec = {"selector": {"app": "ray"}, "ports": PORTS, **spec}
    return SERVICE, {"metadata": {"name": "lab-head-svc", "namespace": "team"}, "spec": spec}


def pod(
    name: str, *, phase: str = "Running", ready: str = "True", leaving: bool = False
) -> tuple[Kind, Object]:
    metadata: Object = {
        "name": name,
        "namespace": "team",
        "labels": {"app": "ray"},
        "creationTimestamp": "2026-01-01",
    }
    metadata |= {"deletionTimestamp": "2026-01-02"} if leaving else {}
    container = {"name": "ray", "ports": [{"name": "dashboard", "containerPort": 8266}]}
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
    return POD, {"metadata": metadata, "spec": {"containers": [container]}, "status": status}


def secret(**content: str) -> tuple[Kind, Object]:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in content.items()}
    return SECRET, {"metadata": {"name": "lab", "namespace": "team"}, "data": encoded}


def test_the_token_is_what_the_secret_beside_the_service_holds() -> None:
    assert services.token(service(secret(auth_token="s3cret\n")), "lab") == "s3cret"


@pytest.mark.parametrize("objects", [(), (secret(token="x"),), (secret(auth_token=" "),)])
def test_a_secret_that_is_not_there_or_has_no_token_is_told(
    objects: tuple[tuple[Kind, Object], ...],
) -> None:
    with pytest.raises(TrainyardError) as missing:
        services.token(service(*objects), "lab")
    assert missing.value.lines() == [
        "the cluster's token is expected in Secret lab, key auth_token, which is missing or empty",
        "  at namespace team of context lab",
        (
            "  -> KubeRay calls a Secret like its RayCluster: kubectl get rayclusters "
            "--all-namespaces"
        ),
    ]


@pytest.mark.parametrize(
    ("objects", "port", "message"),
    [
        ([], 8265, "there is no service lab-head-svc"),
        (
            [svc(), pod("one", phase="Pending"), pod("two", leaving=True)],
            8265,
            f"{HAS_NO} pod that runs",
        ),
        # Without a selector every pod of the namespace would be behind it.
        ([svc(selector=None), pod("one")], 8265, f"{HAS_NO} pod that runs"),
        ([svc(), pod("one")], 80, f"port 80 {LEADS_NOWHERE} 8265, 10001"),
        ([svc(ports=[UNNAMED]), pod("one")], 8265, f"port 8265 {LEADS_NOWHERE} 8265"),
    ],
)
def test_a_service_that_leads_nowhere_is_told(
    objects: list[tuple[Kind, Object]], port: int, message: str
) -> None:
    with pytest.raises(TrainyardError) as raised:
        services.address(service(*objects, port=port))
    assert raised.value.lines()[:2] == [message, "  at namespace team of context lab"]


def test_a_pod_that_is_ready_comes_before_one_that_only_runs() -> None:
    way = service(svc(), pod("one"), pod("two", ready="False"))
    chosen = services.pod_behind(way, svc()[1])
    assert chosen is not None
    assert (chosen["metadata"]["name"], services.port_of(way, svc()[1], chosen)) == ("one", 8266)
    assert services.port_of(service(port=10001), svc()[1], chosen) == 10001
