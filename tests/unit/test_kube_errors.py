"""What the Kubernetes API says when it refuses or does not answer, in our words."""

from __future__ import annotations

import json
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from trainyard.errors import PrerequisiteError, TrainyardError
from trainyard.seams.kube import errors
from trainyard.seams.kube.config import Access
from trainyard.seams.kube.errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    KubeError,
    MissingError,
    QuotaError,
    Request,
    UnknownUserError,
)
from trainyard.seams.kube.types import NODE, POD, RAY_CLUSTER

ACCESS = Access("lab", "https://192.0.2.1:6443", "default", "ops", (Path("/home/ops/.kube/config"),))
CREATE = Request("create", POD, "one", "team")
QUOTA = "small, requested: pods=1, used: pods=2, limited: pods=2"


def refused(status: int, message: str, request: Request = CREATE) -> TrainyardError:
    body = {"kind": "Status", "status": "Failure", "message": message}
    return errors.refused(status, json.dumps(body).encode(), request, ACCESS)


def test_a_right_that_is_missing_is_named_with_verb_kind_namespace_and_user() -> None:
    message = 'pods is forbidden: User "ops@example.org" cannot list resource "pods" in API group ""'
    assert refused(403, message, Request("list", POD, namespace="team")).lines() == [
        "Kubernetes does not let user ops@example.org list pods in namespace team",
        "  at list pods in namespace team: https://192.0.2.1:6443 (context lab)",
        "  -> Ask whoever runs the cluster for a role that may list pods.",
    ]
    assert "list nodes in the whole cluster" in refused(403, message, Request("list", NODE)).what
    assert "get pods/log in namespace team" in refused(403, message, Request("get", POD, "a", "team", "log")).what


@pytest.mark.parametrize(
    ("status", "message", "kind", "what"),
    [
        (400, "bad field", InvalidError, "Kubernetes does not take it: bad field"),
        (422, "Required value", InvalidError, "Kubernetes does not take it: Required value"),
        (
            403,
            'User "ops" cannot do it',
            ForbiddenError,
            "Kubernetes does not let user ops create pods in namespace team",
        ),
        (403, f"exceeded quota: {QUOTA}", QuotaError, f"the quota of namespace team has no room: {QUOTA}"),
        (403, "namespace team because it is being terminated", ConflictError, "namespace team is being removed"),
        (403, "violates PodSecurity", InvalidError, "Kubernetes does not allow it: violates PodSecurity"),
        (404, 'namespaces "team" not found', MissingError, 'Kubernetes does not have it: namespaces "team" not found'),
        (409, "already exists", ConflictError, "Kubernetes has it otherwise: already exists"),
        (500, "webhook failed", KubeError, "the Kubernetes API answered 500: webhook failed"),
        (503, "starting", GoneError, "the Kubernetes API cannot answer now: starting"),
        (429, "too many", GoneError, "the Kubernetes API cannot answer now: too many"),
    ],
)
def test_each_refusal_has_its_kind(status: int, message: str, kind: type[TrainyardError], what: str) -> None:
    error = refused(status, message)
    assert (type(error), error.what) == (kind, what)


def test_a_login_that_is_not_accepted_says_who_logs_in() -> None:
    assert refused(401, "Unauthorized").lines() == [
        "the Kubernetes API does not accept the login of user ops: Unauthorized",
        "  at https://192.0.2.1:6443 (context lab), from /home/ops/.kube/config",
        "  -> Fetch the kubeconfig again, and repeat the command; tokens and certificates end.",
    ]
    error = errors.refused(401, b"", CREATE, replace(ACCESS, plugin="cloud-login"))
    assert isinstance(error, UnknownUserError)
    assert str(error.hint).startswith("cloud-login logs in: log in with it again, and")


def test_an_unknown_kind_and_another_server_are_told_as_that() -> None:
    unknown = errors.refused(404, b"404 page not found\n", Request("patch", RAY_CLUSTER, "lab", "team"), ACCESS)
    assert (type(unknown), unknown.what) == (MissingError, "the cluster does not know RayCluster of ray.io/v1")
    foreign = errors.refused(405, b"<html>\nGo away", CREATE, ACCESS)
    assert foreign.lines() == [
        "something else than a Kubernetes API answered 405",
        "  at create Pod one in namespace team: https://192.0.2.1:6443: Go away",
    ]


def test_a_server_that_does_not_answer_is_told_with_the_proxy_and_never_its_password() -> None:
    refusal = ConnectionRefusedError(111, "Connection refused")
    error = errors.unreachable(refusal, ACCESS, "http://me:s3cret@proxy:3128")
    assert error.lines() == [
        "the Kubernetes API does not answer: Connection refused",
        "  at https://192.0.2.1:6443 (context lab), through the proxy http://proxy:3128",
        "  -> Is the cluster up, and in reach of this machine? `kubectl version` asks the same server.",
    ]
    assert isinstance(error, GoneError)
    assert "it took too long" in errors.unreachable(TimeoutError(), ACCESS, None).what


def test_a_certificate_that_is_not_to_be_trusted_is_no_matter_of_waiting() -> None:
    distrust = ssl.SSLCertVerificationError(1, "certificate verify failed")
    distrust.verify_message = "certificate has expired"
    wrapped = RuntimeError("the library's own words")
    wrapped.__context__ = distrust
    error = errors.unreachable(wrapped, ACCESS, None)
    assert isinstance(error, PrerequisiteError)
    assert error.lines() == [
        "the Kubernetes API's certificate is not to be trusted: certificate has expired",
        "  at https://192.0.2.1:6443 (context lab), from /home/ops/.kube/config",
        "  -> Is the kubeconfig of another cluster, or from before this one was made anew? Fetch it again.",
    ]
