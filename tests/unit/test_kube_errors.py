"""Refusals and silence of the Kubernetes API, in Trainyard's words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainyard.errors import PrerequisiteError, TrainyardError
from trainyard.seams.kube import errors
from trainyard.seams.kube.config import Access
from trainyard.seams.kube.errors import (
    ApiUnreachableError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    KubeError,
)

ACCESS = Access("lab", "https://192.0.2.1:6443", "ops", (Path("/home/ops/.kube/config"),))
CREATE = "POST /api/v1/namespaces/team/pods"
QUOTA = "small, requested: pods=1, used: pods=2, limited: pods=2"
FORBIDDEN = 'pods is forbidden: User "me" cannot get resource "pods/log" in API group ""'


def refused(status: int, message: str) -> TrainyardError:
    body = {"kind": "Status", "status": "Failure", "message": message}
    return errors.refused(status, json.dumps(body).encode(), CREATE, ACCESS)


def test_a_missing_right_is_named_with_verb_kind_namespace_and_user() -> None:
    assert refused(403, f'{FORBIDDEN} in the namespace "team"').lines() == [
        'Kubernetes does not let user me get pods/log in the namespace "team"',
        f"  at {CREATE}: https://192.0.2.1:6443 (context lab)",
        "  -> Ask the cluster's administrator for a role that may get pods/log.",
    ]


@pytest.mark.parametrize(
    ("status", "message", "kind", "what"),
    [
        (400, "bad field", InvalidError, "Kubernetes rejects the object: bad field"),
        (
            401,
            "Unauthorized",
            PrerequisiteError,
            "the Kubernetes API does not accept the login of user ops",
        ),
        (
            403,
            f"{FORBIDDEN} at the cluster scope",
            ForbiddenError,
            "Kubernetes does not let user me get pods/log at the cluster scope",
        ),
        (
            403,
            f"exceeded quota: {QUOTA}",
            PrerequisiteError,
            f"the namespace's quota has no room: {QUOTA}",
        ),
        (
            403,
            "violates PodSecurity",
            InvalidError,
            "Kubernetes does not allow the request: violates PodSecurity",
        ),
        (
            404,
            'namespaces "team" not found',
            KubeError,
            'Kubernetes does not have the object: namespaces "team" not found',
        ),
        (
            409,
            "already exists",
            ConflictError,
            "the object exists or was changed meanwhile: already exists",
        ),
        (500, "webhook failed", KubeError, "the Kubernetes API answered 500: webhook failed"),
        (503, "starting", ApiUnreachableError, "the Kubernetes API cannot answer now: starting"),
    ],
)
def test_each_refusal_has_its_kind(
    status: int, message: str, kind: type[TrainyardError], what: str
) -> None:
    error = refused(status, message)
    assert (type(error), error.what.startswith(what)) == (kind, True)


def test_another_server_is_told_as_that_and_a_kind_that_is_unknown_is_not() -> None:
    foreign = errors.refused(405, b"<html>\nGo away", CREATE, ACCESS)
    assert foreign.what == "a server that is no Kubernetes API answered 405: <html>\nGo away"
    unknown = errors.refused(404, b"404 page not found\n", CREATE, ACCESS)
    assert unknown.what == "Kubernetes does not have the object: 404 page not found"
