"""What images are pulled with on Kubernetes."""

from __future__ import annotations

import base64
import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from trainyard.backends.kuberay import desired
from trainyard.errors import PrerequisiteError
from trainyard.images.types import PinnedImage
from trainyard.seams.registry.auth import Login

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
RAY = Login("$PASSWORD", "ray", "sesame")
TOKEN = Login("/home/a/.docker/config.json", identity_token="abc")


def secret(login: Login | None, image: str = "reg:5000/x@sha256:1", *, at: datetime = NOW, **more: Any) -> Any:
    found = desired.pull_secret("lab", PinnedImage("x", image, None, login), name="lab.pull", **{"others": (), **more})
    if found:
        found["metadata"]["annotations"] = {"io.trainyard/written": at.isoformat()}
    return found


def test_an_image_that_everybody_may_pull_needs_no_secret() -> None:
    assert secret(None) is None


@pytest.mark.parametrize(
    ("image", "registry"),
    [("reg:5000/x@sha256:1", "reg:5000"), ("team/x:1", "https://index.docker.io/v1/"), ("quay.io/x", "quay.io")],
)
def test_the_secret_is_what_kubelets_read(image: str, registry: str) -> None:
    found = secret(RAY, image)
    content = found.pop("data")[".dockerconfigjson"]
    assert found == {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/dockerconfigjson",
        "metadata": {
            "name": "lab.pull",
            "labels": {"io.trainyard/cluster": "lab", "app.kubernetes.io/managed-by": "trainyard"},
            "annotations": {"io.trainyard/written": "2026-01-02T03:04:05+00:00"},
        },
    }
    assert json.loads(base64.b64decode(content)) == {
        "auths": {registry: {"username": "ray", "password": "sesame", "auth": "cmF5OnNlc2FtZQ=="}}
    }


def test_a_token_that_only_docker_can_use_is_told_before_anything_is_made() -> None:
    with pytest.raises(PrerequisiteError) as caught:
        secret(TOKEN)
    assert caught.value.lines() == [
        "the login for registry reg:5000 is a token that only Docker can use: Kubernetes pulls with a user and a "
        "password",
        "  at /home/a/.docker/config.json",
        "  -> Name a user in the cluster file (registry.username with password_env or password_file), or a pull "
        "Secret of the namespace: kuberay.pull_secrets.",
    ]
    assert secret(TOKEN, others=("theirs",)) is None


def test_a_secret_with_the_same_login_stays_as_it_is_for_ever() -> None:
    assert desired.is_current(secret(RAY), secret(RAY, at=NOW + timedelta(days=400)), now=NOW + timedelta(days=400))


@pytest.mark.parametrize(
    "other",
    [Login("", "ray", "new"), Login("", "eve", "sesame"), Login("", "AWS", "sesame")],
)
def test_another_login_makes_it_new(other: Login) -> None:
    assert not desired.is_current(secret(RAY), secret(other), now=NOW)


def test_another_registry_makes_it_new() -> None:
    assert not desired.is_current(secret(RAY), secret(RAY, "quay.io/x"), now=NOW)


@pytest.mark.parametrize(("hours", "is_current"), [(0, True), (5, True), (6, False), (13, False)])
def test_a_login_of_aws_is_renewed_before_it_expires_and_not_at_every_look(hours: int, is_current: bool) -> None:
    later = NOW + timedelta(hours=hours)
    old, new = secret(Login("AWS ECR", "AWS", "one")), secret(Login("AWS ECR", "AWS", "two"), at=later)
    assert desired.is_current(old, new, now=later) is is_current


@pytest.mark.parametrize("data", [None, {}, {".dockerconfigjson": "?"}, {".dockerconfigjson": "e30="}])
def test_what_cannot_be_read_is_made_new(data: Any) -> None:
    assert not desired.is_current({**secret(RAY), "data": data}, secret(RAY), now=NOW)


def test_a_secret_without_our_date_is_made_new_where_the_date_counts() -> None:
    old = secret(Login("AWS ECR", "AWS", "one"))
    del old["metadata"]["annotations"]
    assert not desired.is_current(old, secret(Login("AWS ECR", "AWS", "two")), now=NOW)
