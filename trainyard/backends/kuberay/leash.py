"""The leash is a pod whose account may delete only its RayCluster."""

from __future__ import annotations

import json
from collections.abc import Sequence

from trainyard.backends.contract import LeashStatus
from trainyard.backends.kuberay import location, naming, pods
from trainyard.backends.kuberay.location import Location, is_ours, kubectl, owner_of
from trainyard.backends.kuberay.manifest import rendered
from trainyard.backends.kuberay.snapshot import if_allowed
from trainyard.backends.shared.leash import Leash, settings, source
from trainyard.backends.shared.record import TOKEN_KEY
from trainyard.seams.kube.types import (
    DEPLOYMENT,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    Object,
)

KINDS = (SERVICE_ACCOUNT, ROLE, ROLE_BINDING, DEPLOYMENT)
READY = "/tmp/trainyard-leash"  # noqa: S108 (in its own container)
# A label that only the leash's pod has.
_PART = "io.trainyard/part"


def of(where: Location) -> Leash:
    """Return the leash. Its deadline counts from the RayCluster's creation."""
    return Leash(
        lambda: observe(where),
        lambda: made(location.ray_cluster(where)),
        lambda status: put(where, status),
        lambda: take_off(where),
    )


def made(ray_cluster: Object | None) -> float | None:
    if ray_cluster is None:
        return None
    return pods.seconds(ray_cluster["metadata"]["creationTimestamp"])


def _name(where: Location) -> str:
    return f"{where.name}-leash"


def observe(where: Location) -> LeashStatus | None:
    """Ask Kubernetes for the leash, an annotation of its Deployment.

    Returns None without the Deployment, or if the user may not read it. The
    leash has a `problem` while its pod is not ready.
    """
    deployment = if_allowed(where.kube.get, DEPLOYMENT, _name(where), namespace=where.namespace)
    if deployment is None or naming.LEASH not in pods.annotations_of(deployment):
        return None

    written = json.loads(pods.annotations_of(deployment)[naming.LEASH])
    idle = written["idle"]
    deadline = written["deadline"]
    available = pods.condition(deployment, "Available")
    observed = (deployment.get("status") or {}).get("observedGeneration")
    is_current = observed == deployment["metadata"].get("generation")
    if available.get("status") == "True" and is_current:
        return LeashStatus(idle, deadline, pods.seconds(available["lastTransitionTime"]))

    problem = (
        f"its pod is not ready: {kubectl(where)} -n {where.namespace} logs "
        f"deployment/{_name(where)}"
    )
    return LeashStatus(idle, deadline, problem=problem)


def put(where: Location, leash: LeashStatus) -> None:
    """Apply the leash's objects; do nothing without a RayCluster.

    The RayCluster becomes their owner, and the owner of the cluster's Secrets,
    so that Kubernetes removes them all with the RayCluster.
    """
    live = location.ray_cluster(where)
    if live is None:
        return

    owner = owner_of(live, where.name)
    for document in documents(where, leash, live, owner):
        kind = next(kind for kind in KINDS if kind.name == document["kind"])
        where.kube.apply(kind, document, namespace=where.namespace)

    for secret in _secrets(where):
        _own(where, secret, [owner])


def documents(where: Location, leash: LeashStatus, live: Object, owner: Object) -> Sequence[Object]:
    """Return the leash's objects, with the head's image, placement and user."""
    head = live["spec"]["headGroupSpec"]["template"]["spec"]
    container = head["containers"][0]
    labels = {**naming.labels(where.name), _PART: "leash"}

    metadata = {
        "name": _name(where),
        "namespace": where.namespace,
        "labels": naming.labels(where.name),
        "ownerReferences": [owner],
    }

    limits = settings(leash)
    program_settings = settings(
        leash,
        dashboard=f"http://{where.name}-head-svc:{naming.DASHBOARD_PORT}",
        token_file=f"/run/trainyard/{TOKEN_KEY}",
        ready=READY,
        kubernetes={"namespace": where.namespace, "name": where.name, "uid": owner["uid"]},
    )

    of_head = (
        "imagePullSecrets",
        "nodeSelector",
        "tolerations",
        "priorityClassName",
        "securityContext",
    )

    values = {
        "metadata": metadata,
        "deployment_metadata": {**metadata, "annotations": {naming.LEASH: limits}},
        "cluster": where.name,
        "labels": labels,
        "head": {key: head.get(key) for key in of_head},
        "image": container["image"],
        "container_security": container.get("securityContext"),
        "command": [*source(), program_settings],
        "ready": READY,
        "secret": naming.token_secret(where.name),
    }

    items: Sequence[Object] = rendered("leash", values)["items"]
    return items


def take_off(where: Location) -> None:
    """Remove the leash's objects; the RayCluster still owns the Secrets."""
    for kind in KINDS:
        where.kube.delete(kind, _name(where), namespace=where.namespace)


def release_secrets(where: Location) -> None:
    """Let the Secrets outlive the RayCluster: remove their ownerReferences."""
    for secret in _secrets(where):
        if secret["metadata"].get("ownerReferences"):
            _own(where, secret, None)


def _secrets(where: Location) -> list[Object]:
    found = []
    for name in (naming.token_secret(where.name), naming.pull_secret(where.name)):
        secret = where.kube.get(SECRET, name, namespace=where.namespace)
        if secret and is_ours(secret, where.name):
            found.append(secret)
    return found


def _own(where: Location, secret: Object, owners: Sequence[Object] | None) -> None:
    change = {"metadata": {"ownerReferences": owners}}
    where.kube.patch(SECRET, secret["metadata"]["name"], change, namespace=where.namespace)
