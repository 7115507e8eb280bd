"""The logins with which images are pulled on Kubernetes."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from trainyard.backends.kuberay import desired
from trainyard.errors import PrerequisiteError
from trainyard.images.resolve import PinnedImage
from trainyard.seams.registry.auth import Login

RAY = Login("$PASSWORD", "ray", "sesame")
TOKEN = Login("/home/a/.docker/config.json", identity_token="abc")


def secret(login: Login | None, image: str = "reg:5000/x@sha256:1", **more: Any) -> Any:
    return desired.pull_secret(
        "lab", [PinnedImage("x", image, None, login)], name="lab.pull", **{"others": (), **more}
    )


def test_an_image_that_everybody_may_pull_needs_no_secret() -> None:
    assert secret(None) is None


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("reg:5000/x@sha256:1", "reg:5000"),
        ("team/x:1", "https://index.docker.io/v1/"),
        ("quay.io/x", "quay.io"),
    ],
)
def test_the_secret_is_what_kubelets_read(image: str, registry: str) -> None:
    found = secret(RAY, image)
    content = found.pop("data")[".dockerconfigjson"]
    assert found == {
        "type": "kubernetes.io/dockerconfigjson",
        "metadata": {
            "name": "lab.pull",
            "labels": {"io.trainyard/cluster": "lab", "app.kubernetes.io/managed-by": "trainyard"},
        },
    }

    assert json.loads(base64.b64decode(content)) == {
        "auths": {registry: {"username": "ray", "password": "sesame", "auth": "cmF5OnNlc2FtZQ=="}}
    }


def test_a_token_that_only_docker_can_use_is_told_before_anything_is_made() -> None:
    with pytest.raises(PrerequisiteError) as caught:
        secret(TOKEN)
    assert caught.value.lines() == [
        "the login for registry reg:5000 is a token that only Docker can use: Kubernetes needs "
        "a user and a password",
        "  at /home/a/.docker/config.json",
        "  -> Name a user in the cluster file (registry.username with password_env or "
        "password_file), or a pull "
        "Secret of the namespace: kuberay.pull_secrets.",
    ]
    assert secret(TOKEN, others=("theirs",)) is None
