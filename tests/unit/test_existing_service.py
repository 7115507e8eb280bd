"""The way to somebody else's cluster on Kubernetes: its service, the pods behind it, the Secret beside it."""

from __future__ import annotations

import base64
from typing import Any, cast

import pytest

from tests.unit.fake_kube import FakeKube
from trainyard.backends.existing import service as services
from trainyard.backends.existing.service import Service
from trainyard.errors import PrerequisiteError, TrainyardError
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.types import POD, SECRET, SERVICE, Kind, Object

PORTS = [{"port": 8265, "targetPort": "dashboard"}, {"port": 10001}]


def service(*objects: tuple[Kind, Object], port: int = 8265) -> Service:
    return Service(cast(Kube, FakeKube(*objects)), "team", "lab-head-svc", port)


def svc(**spec: Any) -> tuple[Kind, Object]:
    spec = {"selector": {"app": "ray"}, "ports": PORTS, **spec}
    return SERVICE, {"metadata": {"name": "lab-head-svc", "namespace": "team"}, "spec": spec}


def pod(name: str, *, phase: str = "Running", ready: str = "True", leaving: bool = False) -> tuple[Kind, Object]:
    metadata: Object = {"name": name, "namespace": "team", "labels": {"app": "ray"}, "creationTimestamp": "2026-01-01"}
    metadata |= {"deletionTimestamp": "2026-01-02"} if leaving else {}
    container = {"name": "ray", "ports": [{"name": "dashboard", "containerPort": 8266}]}
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
    return POD, {"metadata": metadata, "spec": {"containers": [container]}, "status": status}


def secret(**content: str) -> tuple[Kind, Object]:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in content.items()}
    return SECRET, {"metadata": {"name": "lab", "namespace": "team"}, "data": encoded}


def refusal(found: Service) -> list[str]:
    with pytest.raises(TrainyardError) as raised:
        services.address(found)
    return raised.value.lines()


def test_the_token_is_what_the_secret_beside_the_service_holds() -> None:
    assert services.token(service(secret(auth_token="s3cret\n")), "lab") == "s3cret"


def test_a_secret_that_is_not_there_or_has_no_token_is_told() -> None:
    with pytest.raises(TrainyardError) as missing:
        services.token(service(), "lab")
    assert missing.value.lines() == [
        "the cluster's token is expected in Secret lab, which is not there",
        "  at namespace team of context lab",
        "  -> KubeRay's Secrets are called like their RayCluster: kubectl get rayclusters --all-namespaces",
    ]
    for content, why in (({"token": "x"}, "not there"), ({"auth_token": " "}, "empty")):
        with pytest.raises(TrainyardError) as empty:
            services.token(service(secret(**content)), "lab")
        assert empty.value.what == f"Secret lab has no token: its key auth_token is {why}"


def test_a_service_that_is_not_there_is_told_with_one_that_is_called_alike() -> None:
    def other(name: str, port: int) -> tuple[Kind, Object]:
        return SERVICE, {"metadata": {"name": name, "namespace": "team"}, "spec": {"ports": [{"port": port}]}}

    assert refusal(service(other("lab2-head-svc", 8265), other("db", 5432))) == [
        "there is no service lab-head-svc; did you mean 'lab2-head-svc'?",
        "  at namespace team of context lab",
        "  -> Services there: db, lab2-head-svc. That of a RayCluster NAME is called NAME-head-svc.",
    ]
    with pytest.raises(PrerequisiteError):  # exit 3, at once: it is not waited for
        services.address(service())


@pytest.mark.parametrize(
    ("spec", "pods", "port", "message"),
    [
        ({}, [pod("one", phase="Pending"), pod("two", leaving=True)], 8265, "lab-head-svc has no pod that runs"),
        ({"selector": None}, [], 8265, "lab-head-svc does not say which pods are behind it"),
        ({}, [pod("one")], 80, "lab-head-svc has no port 80; it has 8265, 10001"),
        (
            {"ports": [{"port": 8265, "targetPort": "web"}]},
            [pod("one")],
            8265,
            "lab-head-svc leads to a port called 'web', which its pods do not have",
        ),
    ],
)
def test_a_service_that_leads_nowhere_is_told(
    spec: dict[str, Any], pods: list[tuple[Kind, Object]], port: int, message: str
) -> None:
    told = refusal(service(svc(**spec), *pods, port=port))
    assert told[0].endswith(f"service {message}")
    assert told[1] == "  at namespace team of context lab"


def test_a_pod_that_is_ready_comes_before_one_that_only_runs() -> None:
    found = service(svc(), pod("one"), pod("two", ready="False"))
    chosen = services.pod_behind(found, svc()[1])
    assert chosen is not None
    assert (chosen["metadata"]["name"], services.port_of(found, svc()[1], chosen)) == ("one", 8266)
    assert services.port_of(service(port=10001), svc()[1], chosen) == 10001
