"""What the Kubernetes API says when it refuses, in our words."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import pytest

from trainyard.errors import PrerequisiteError, TrainyardError
from trainyard.seams.kube import refusals
from trainyard.seams.kube.access import Access
from trainyard.seams.kube.errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    KubeError,
    MissingError,
    QuotaError,
    UnknownUserError,
)
from trainyard.seams.kube.refusals import Doing
from trainyard.seams.kube.types import NODE, POD, RAY_CLUSTER

ACCESS = Access("lab", "https://192.0.2.1:6443", "default", "ops", (Path("/home/ops/.kube/config"),))
MAKING = Doing("create", POD, "one", "team")


def refused(status: int, message: str, doing: Doing = MAKING, **details: Any) -> TrainyardError:
    body = {"kind": "Status", "status": "Failure", "message": message, "details": details}
    return refusals.refused(status, json.dumps(body).encode(), doing, ACCESS)


def test_a_right_that_is_missing_is_named_with_verb_kind_namespace_and_user() -> None:
    message = (
        'pods is forbidden: User "ops@example.org" cannot list resource "pods" in API group "" in the namespace "team"'
    )
    error = refused(403, message, Doing("list", POD, namespace="team"))
    assert error.lines() == [
        "Kubernetes does not let user ops@example.org list pods in namespace team",
        "  at https://192.0.2.1:6443 (context lab)",
        "  -> Ask whoever runs the cluster for a role that may list pods.",
    ]
    assert isinstance(error, ForbiddenError)
    assert (error.verb, error.kind, error.namespace, error.user) == ("list", "pods", "team", "ops@example.org")


def test_a_right_for_the_whole_cluster_is_told_as_that_and_a_part_by_its_name() -> None:
    nodes = refused(403, 'nodes is forbidden: User "ops" cannot list resource "nodes"', Doing("list", NODE))
    assert nodes.what == "Kubernetes does not let user ops list nodes in the whole cluster"
    log = Doing("get", POD, "one", "team", part="log")
    assert refused(403, 'User "ops" cannot get resource "pods/log"', log).what == (
        "Kubernetes does not let user ops get pods/log in namespace team"
    )


def test_a_full_quota_is_told_by_what_is_asked_and_what_is_left() -> None:
    error = refused(
        403, 'pods "one" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2'
    )
    assert isinstance(error, QuotaError)
    assert error.lines() == [
        "the quota of namespace team has no room: small, requested: pods=1, used: pods=2, limited: pods=2",
        "  at create Pod one in namespace team: https://192.0.2.1:6443 (context lab)",
        "  -> Ask for less, or ask whoever runs the cluster for a larger quota.",
    ]


@pytest.mark.parametrize(
    ("status", "message", "kind", "what"),
    [
        (400, "bad field", InvalidError, "Kubernetes does not take it: bad field"),
        (422, "Required value", InvalidError, "Kubernetes does not take it: Required value"),
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


def test_a_namespace_that_is_being_removed_is_waited_for_and_not_complained_about() -> None:
    error = refused(403, "unable to create new content", causes=[{"reason": "NamespaceTerminating"}])
    assert (type(error), error.what) == (ConflictError, "namespace team is being removed")


def test_a_login_that_is_not_accepted_says_who_logs_in() -> None:
    assert refused(401, "Unauthorized").lines() == [
        "the Kubernetes API does not accept the login of user ops: Unauthorized",
        "  at https://192.0.2.1:6443 (context lab), from /home/ops/.kube/config",
        "  -> Fetch the kubeconfig again, and repeat the command; tokens and certificates end.",
    ]
    plugged = Access("lab", "https://192.0.2.1", "default", "ops", plugin="cloud-login")
    error = refusals.refused(401, b"", MAKING, plugged)
    assert isinstance(error, UnknownUserError)
    assert (
        error.hint == "cloud-login logs in: log in with it again, and repeat the command; tokens and certificates end."
    )


def test_a_kind_that_the_cluster_does_not_know_is_told_as_that() -> None:
    error = refusals.refused(404, b"404 page not found\n", Doing("patch", RAY_CLUSTER, "lab", "team"), ACCESS)
    assert (type(error), error.what) == (MissingError, "the cluster does not know RayCluster of ray.io/v1")


def test_another_server_than_a_kubernetes_api_is_told_as_that() -> None:
    error = refusals.refused(405, b"<html>\nGo away", MAKING, ACCESS)
    assert error.lines() == [
        "something else than a Kubernetes API answered 405",
        "  at create Pod one in namespace team: https://192.0.2.1:6443: Go away",
    ]


def test_a_server_that_does_not_answer_is_told_with_the_proxy_and_never_its_password() -> None:
    error = refusals.unreachable(
        ConnectionRefusedError(111, "Connection refused"), ACCESS, "http://me:s3cret@proxy:3128"
    )
    assert error.lines() == [
        "the Kubernetes API does not answer: Connection refused",
        "  at https://192.0.2.1:6443 (context lab), through the proxy http://proxy:3128",
        "  -> Is the cluster up, and in reach of this machine? `kubectl version` asks the same server.",
    ]
    assert isinstance(error, GoneError)


def test_a_certificate_that_is_not_to_be_trusted_is_no_matter_of_waiting() -> None:
    distrust = ssl.SSLCertVerificationError(1, "certificate verify failed")
    distrust.verify_message = "certificate has expired"
    wrapped = RuntimeError("the library's own words")
    wrapped.__context__ = distrust
    error = refusals.unreachable(wrapped, ACCESS, None)
    assert isinstance(error, PrerequisiteError)
    assert error.lines() == [
        "the Kubernetes API's certificate is not to be trusted: certificate has expired",
        "  at https://192.0.2.1:6443 (context lab), from /home/ops/.kube/config",
        "  -> Is the kubeconfig of another cluster, or from before this one was made anew? Fetch it again.",
    ]
