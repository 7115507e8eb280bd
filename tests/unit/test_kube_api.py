"""Questions to the Kubernetes API, and how answers are read; the server is a list of answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from trainyard.errors import TrainyardError
from trainyard.seams.kube import errors
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.config import Access
from trainyard.seams.kube.transport import Response
from trainyard.seams.kube.types import POD, RAY_CLUSTER, RAY_JOB

ACCESS = Access("lab", "https://192.0.2.1:6443", "ops")


@dataclass
class Server:
    """Answers in order, and what was asked for them."""

    answers: list[Response]
    asked: list[tuple[str, str, Mapping[str, str]]] = field(default_factory=list)
    bodies: list[tuple[str, Any]] = field(default_factory=list)

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: tuple[int, ...] = (),
    ) -> Response:
        self.asked.append((method, path, dict(params or {})))
        if body is not None:
            self.bodies.append((content_type, body))
        answer = self.answers.pop(0)
        if answer.status >= 400 and answer.status not in accept:
            raise errors.refused(answer.status, answer.body, f"{method} {path}", ACCESS)
        return answer


def answered(*answers: tuple[int, Any]) -> tuple[Kube, Server]:
    kube = Kube(ACCESS)
    server = Server([Response(status, json.dumps(body).encode()) for status, body in answers])
    kube.transport = server  # type: ignore[assignment]
    return kube, server


def status(code: int, message: str) -> tuple[int, Any]:
    return code, {"kind": "Status", "message": message}


def test_an_object_that_is_not_there_is_none() -> None:
    kube, server = answered((200, {"metadata": {"name": "one"}}), status(404, "not found"))
    assert kube.get(POD, "one", "team") == {"metadata": {"name": "one"}}
    assert kube.get(POD, "two", "team") is None
    assert server.asked[0] == ("GET", "/api/v1/namespaces/team/pods/one", {})


def test_objects_are_listed_by_their_labels() -> None:
    pod = {"metadata": {"name": "one"}}
    kube, server = answered((200, {"items": [pod]}))
    assert kube.list(POD, namespace="team", labels="a in (b,c)") == [pod]
    assert server.asked[0][2] == {"labelSelector": "a in (b,c)"}


def test_a_kind_unknown_to_the_cluster_has_no_objects() -> None:
    kube, _ = answered(
        (404, "page not found"),
        (404, "page not found"),
        (200, {"resources": [{"name": "rayjobs"}]}),
    )
    assert kube.list(RAY_CLUSTER) == []
    assert [kube.serves(kind) for kind in (RAY_CLUSTER, RAY_JOB)] == [False, True]


def test_applying_says_who_applies_and_completes_the_object() -> None:
    body = {"metadata": {"name": "lab"}, "spec": {}}
    kube, server = answered((200, body), (200, body))
    kube.apply(RAY_CLUSTER, body, namespace="team")
    kube.apply(RAY_CLUSTER, body, namespace="team", dry_run=True)
    path = "/apis/ray.io/v1/namespaces/team/rayclusters/lab"
    assert server.asked == [
        ("PATCH", path, {"fieldManager": "trainyard", "force": "true"}),
        ("PATCH", path, {"fieldManager": "trainyard", "force": "true", "dryRun": "All"}),
    ]
    whole = {"apiVersion": "ray.io/v1", "kind": "RayCluster", **body}
    assert server.bodies[0] == ("application/apply-patch+yaml", whole)


def test_only_the_object_that_was_meant_is_deleted() -> None:
    kube, server = answered(
        (200, {}), status(404, "not found"), status(409, "the UID in the precondition")
    )
    assert kube.delete(POD, "one", namespace="team", uid="abc")
    assert not kube.delete(POD, "one", namespace="team", with_owned=True)
    assert not kube.delete(POD, "one", namespace="team", uid="abc")
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    assert [body for _, body in server.bodies] == [
        {**options, "preconditions": {"uid": "abc"}},
        {**options, "propagationPolicy": "Foreground"},
        {**options, "preconditions": {"uid": "abc"}},
    ]


def test_an_answer_that_is_no_object_is_no_answer() -> None:
    kube, _ = answered((200, ["something"]))
    with pytest.raises(TrainyardError, match="did not answer with an object"):
        kube.get(POD, "one", "team")
