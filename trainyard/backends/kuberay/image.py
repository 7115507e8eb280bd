"""Which image exactly the nodes run, and the Secret that it is pulled with; its content goes to the API server alone.

Kubelets know users and passwords only (core/v1, kubernetes.io/dockerconfigjson): tokens that stand for both, as some
`docker login`s leave them, mean nothing to them.
"""

from __future__ import annotations

import base64
import ipaddress
import json
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlsplit

from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import naming
from trainyard.backends.kuberay.location import Location
from trainyard.errors import PrerequisiteError
from trainyard.images import resolve
from trainyard.images.types import PinnedImage
from trainyard.seams.docker import images as docker_images
from trainyard.seams.kube.types import Object
from trainyard.spec.cluster import ClusterSpec

KEY = ".dockerconfigjson"
# When the content was written: a login of AWS is good for 12 hours, and another one at every question.
WRITTEN = "io.trainyard/written"
RENEW_AFTER = timedelta(hours=6)
# Kubelets look for Docker Hub under this name alone (kubernetes, pkg/credentialprovider/keyring.go).
HUB_KEY = "https://index.docker.io/v1/"
# Whom every login of AWS's registries is for (ECR user guide, "Registry authentication").
AWS_USER = "AWS"


def pinned(spec: ClusterSpec, tools: Tools, where: Location, *, running: str | None = None) -> PinnedImage:
    """Return the exact image that the file means now, as its registry says; else the one that the cluster runs."""
    server = urlsplit(where.kube.server).hostname or ""
    try:
        loopback = ipaddress.ip_address(server).is_loopback
    except ValueError:
        loopback = server == "localhost"
    return resolve.for_nodes(spec, tools.environ, directory=tools.directory, loopback=loopback, running=running)


def pull_secret(cluster: str, image: PinnedImage, *, others: Sequence[str], name: str) -> Object | None:
    """Return the Secret to pull a cluster's image with, None when it needs no login.

    `others` are the Secrets that the file names in kuberay.pull_secrets. Raises PrerequisiteError for a login that
    only Docker can use, unless there are such.
    """
    login = image.login
    if login is None:
        return None
    registry = docker_images.registry_of(image.reference)
    if not login.password:
        if others:
            return None
        raise PrerequisiteError(
            f"the login for registry {registry} is a token that only Docker can use: Kubernetes pulls with a user and "
            "a password",
            where=login.source,
            hint="Name a user in the cluster file (registry.username with password_env or password_file), or a pull "
            "Secret of the namespace: kuberay.pull_secrets.",
        )
    token = base64.b64encode(f"{login.username}:{login.password}".encode()).decode()
    entry = {"username": login.username, "password": login.password, "auth": token}
    content = json.dumps({"auths": {HUB_KEY if registry == docker_images.HUB else registry: entry}}, sort_keys=True)
    written = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": name, "labels": naming.labels(cluster), "annotations": {WRITTEN: written}},
        "data": {KEY: base64.b64encode(content.encode()).decode()},
    }


def is_current(there: Object, desired: Object, *, now: datetime) -> bool:
    """Say whether the Secret on Kubernetes is as good as the desired one: the same login, or AWS's from a while ago."""
    old, new = _logins(there), _logins(desired)
    users = [{registry: entry.get("username", "") for registry, entry in logins.items()} for logins in (old, new)]
    is_of_aws = users[0] == users[1] and set(users[1].values()) == {AWS_USER}
    return old == new or (is_of_aws and _age(there, now) < RENEW_AFTER)


def _logins(secret: Object) -> dict[str, Any]:
    """Return the logins by registry; what cannot be read has none."""
    try:
        content = json.loads(base64.b64decode((secret.get("data") or {}).get(KEY, ""), validate=True))
        return dict(content["auths"])
    except (ValueError, KeyError, TypeError):
        return {}


def _age(secret: Object, now: datetime) -> timedelta:
    written = (secret["metadata"].get("annotations") or {}).get(WRITTEN)
    try:
        return now - datetime.fromisoformat(written or "")
    except (ValueError, TypeError):
        return timedelta.max
