"""The Secret that a cluster's images are pulled with; its content goes to the API server and nowhere else.

Kubelets know users and passwords only (core/v1, kubernetes.io/dockerconfigjson): tokens that stand for both, as some
`docker login`s leave them, mean nothing to them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from trainyard.backends.kuberay import names
from trainyard.errors import PrerequisiteError
from trainyard.images.types import PinnedImage
from trainyard.seams.docker import images as docker_images
from trainyard.seams.kube.types import Object

TYPE = "kubernetes.io/dockerconfigjson"
KEY = ".dockerconfigjson"
# When the content was written: a login of AWS is good for 12 hours, and another one at every question.
WRITTEN = "io.trainyard/written"
RENEW_AFTER = timedelta(hours=6)
# Kubelets look for Docker Hub under this name alone (kubernetes, pkg/credentialprovider/keyring.go).
HUB_KEY = "https://index.docker.io/v1/"
# Whom every login of AWS's registries is for (ECR user guide, "Registry authentication").
AWS_USER = "AWS"


def secret(cluster: str, image: PinnedImage, *, others: Sequence[str], now: datetime) -> Object | None:
    """Return the pull Secret of a cluster, None when its image needs no login.

    `others` are the Secrets that the file names in kuberay.pull_secrets. Raises PrerequisiteError for a login that
    only Docker can use, unless there are such.
    """
    who = image.login
    if who is None:
        return None
    registry = docker_images.registry_of(image.reference)
    if not who.password:
        if others:
            return None
        raise PrerequisiteError(
            f"the login for registry {registry} is a token that only Docker can use: Kubernetes pulls with a user and "
            "a password",
            where=who.source,
            hint="Name a user in the cluster file (registry.username with password_env or password_file), or a pull "
            "Secret of the namespace: kuberay.pull_secrets.",
        )
    token = base64.b64encode(f"{who.username}:{who.password}".encode()).decode()
    entry = {"username": who.username, "password": who.password, "auth": token}
    content = json.dumps({"auths": {HUB_KEY if registry == docker_images.HUB else registry: entry}}, sort_keys=True)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": TYPE,
        "metadata": {
            "name": names.pull_secret(cluster),
            "labels": names.labels(cluster),
            "annotations": {WRITTEN: now.isoformat(timespec="seconds")},
        },
        "data": {KEY: base64.b64encode(content.encode()).decode()},
    }


def is_current(there: Object, wanted: Object, *, now: datetime) -> bool:
    """Say whether the Secret on Kubernetes is as good as the wanted one: the same login, or AWS's from a while ago."""
    old, new = _logins(there), _logins(wanted)
    if old == new:
        return True
    users = _users(new)
    return _users(old) == users and set(users.values()) == {AWS_USER} and _age(there, now) < RENEW_AFTER


def _logins(one: Object) -> dict[str, Any]:
    """Return the logins by registry; what cannot be read has none."""
    try:
        content = json.loads(base64.b64decode((one.get("data") or {}).get(KEY, ""), validate=True))
        return dict(content["auths"])
    except (ValueError, KeyError, TypeError):
        return {}


def _users(logins: dict[str, Any]) -> dict[str, str]:
    return {registry: entry.get("username", "") for registry, entry in logins.items()}


def _age(one: Object, now: datetime) -> timedelta:
    written = (one["metadata"].get("annotations") or {}).get(WRITTEN)
    try:
        return now - datetime.fromisoformat(written or "")
    except (ValueError, TypeError):
        return timedelta.max
