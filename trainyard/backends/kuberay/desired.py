"""What `cluster.up` is to make on Kubernetes, and what was there when the command began; the image and its login.

Kubelets know users and passwords only (core/v1, kubernetes.io/dockerconfigjson): tokens that stand for both, as some
`docker login`s leave them, mean nothing to them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import location, naming, operator, pods
from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.manifest import Documents, documents
from trainyard.backends.kuberay.manifest.pod import Inputs
from trainyard.backends.kuberay.operator import Kuberay
from trainyard.backends.kuberay.snapshot import if_allowed
from trainyard.errors import NotReadyError, PrerequisiteError
from trainyard.images import resolve
from trainyard.images.types import PinnedImage
from trainyard.seams.docker import images as docker_images
from trainyard.seams.kube.types import NAMESPACE, POD, RAY_CLUSTER, SECRET, Object
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import KuberaySection

KEY = ".dockerconfigjson"
# When the content was written: a login of AWS is good for 12 hours, and another one at every question.
WRITTEN = "io.trainyard/written"
RENEW_AFTER = timedelta(hours=6)
# Kubelets look for Docker Hub under this name alone (kubernetes, pkg/credentialprovider/keyring.go).
HUB_KEY = "https://index.docker.io/v1/"
# Whom every login of AWS's registries is for (ECR user guide, "Registry authentication").
AWS_USER = "AWS"


def pinned(spec: ClusterSpec, tools: Tools, *, running: str | None = None) -> PinnedImage:
    """Return the exact image that the file means now, as its registry says; else the one that the cluster runs."""
    return resolve.pinned(spec, tools.environ, directory=tools.directory, running=running)


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


@dataclass(frozen=True)
class Desired:
    """A cluster as it should be, and what there was.

    `live` is the RayCluster, None if there was none; `pods` are those that KubeRay made for it, or for one before it.
    `pull_secret` is None where the image needs no login of ours; `takes_login_back`: it needed one once.
    """

    spec: ClusterSpec
    tools: Tools
    location: Location
    image: PinnedImage
    documents: Documents
    kuberay: Kuberay
    pull_secret: Object | None
    takes_login_back: bool
    has_namespace: bool
    live: Object | None
    pods: tuple[Object, ...]

    @property
    def running(self) -> Object | None:
        """Return the RayCluster that is to be kept or changed: not one that is being removed."""
        return None if self.live is None or pods.is_leaving(self.live) else self.live

    @property
    def never_started(self) -> bool:
        """Say whether nothing can run on the RayCluster that is there: its head was never ready."""
        live = self.live
        started = ("HeadPodReady", "RayClusterProvisioned")
        return live is not None and not any(pods.condition(live, kind).get("status") == "True" for kind in started)

    @property
    def is_new(self) -> bool:
        return self.running is None or self.tools.recreate


def read(spec: ClusterSpec, tools: Tools, section: KuberaySection) -> Desired:
    """Find out what the file means on its Kubernetes. Raises what stands in the way."""
    where = location.of_section(spec, tools, section)
    location.refuse_other(tools, where)
    kube, name, space = where.kube, spec.name, where.namespace
    # Who is not known, or not answered, hears it once, and from the first question.
    live = kube.get(RAY_CLUSTER, name, namespace=space)
    if live is not None:
        location.refuse_foreign(live, where)
    runs = None if live is None or tools.recreate else _annotation(live)
    with ThreadPoolExecutor(6) as pool:
        asked_image = pool.submit(pinned, spec, tools, running=runs)
        namespace = pool.submit(if_allowed, lambda: kube.get(NAMESPACE, space))
        login = pool.submit(if_allowed, lambda: kube.get(SECRET, naming.pull_secret(name), namespace=space))
        own = pool.submit(kube.list, POD, namespace=space, labels=naming.of_ray_cluster(name))
        kuberay = operator.read(where, tools)
        _refuse_leaving(namespace.result().found, where)
        image = asked_image.result()
    # The cluster's own image goes with the logins that it was made with.
    own_secret = naming.pull_secret(name)
    made = None if image.is_kept else pull_secret(name, image, others=section.pull_secrets, name=own_secret)
    used = _pull_secrets(live) if image.is_kept and live else (*([own_secret] if made else []), *section.pull_secrets)
    reply, secret = namespace.result(), login.result().found
    return Desired(
        spec=spec,
        tools=tools,
        location=where,
        image=image,
        documents=documents(
            Inputs(spec, section, _same(image, live), simulated=simulates(spec, section), pull_secrets=used)
        ),
        kuberay=kuberay,
        pull_secret=made,
        takes_login_back=secret is not None and location.is_ours(secret, name) and own_secret not in used,
        has_namespace=reply.found is not None or reply.refusal is not None,
        live=live,
        pods=tuple(own.result()),
    )


def simulates(spec: ClusterSpec, section: KuberaySection) -> bool:
    """Say whether the GPUs of the file are numbers of Ray only."""
    return section.simulated_gpus and bool(spec.head.gpus or any(group.gpus for group in spec.workers))


def _same(image: PinnedImage, live: Object | None) -> str:
    """Return the reference that the cluster runs if it means the same image, whatever registry it names."""
    runs = _annotation(live) if live else ""
    return runs if image.digest and runs.endswith(f"@{image.digest}") else image.reference


def _annotation(live: Object) -> str:
    return str((live["metadata"].get("annotations") or {}).get(naming.IMAGE) or "")


def _pull_secrets(live: Object) -> tuple[str, ...]:
    pod = live["spec"]["headGroupSpec"]["template"]["spec"]
    return tuple(secret["name"] for secret in pod.get("imagePullSecrets") or ())


def _refuse_leaving(namespace: Object | None, where: Location) -> None:
    status = (namespace or {}).get("status") or {}
    if status.get("phase") != "Terminating":
        return
    left = [each["message"] for each in status.get("conditions") or () if each.get("status") == "True"]
    raise NotReadyError(
        f"namespace {where.namespace} is being removed",
        where="; ".join(left) or None,
        hint=f"Repeat the command when it is gone: kubectl get namespace {where.namespace}",
    )
