"""RayClusters that Trainyard did not make, with cluster files that use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainyard.backends.contract import OthersCluster
from trainyard.backends.kuberay import naming, pods
from trainyard.backends.shared.taking import as_name
from trainyard.errors import OutsideError
from trainyard.seams.kube import api, config
from trainyard.seams.kube.errors import ForbiddenError
from trainyard.seams.kube.types import RAY_CLUSTER, Object


def discover(
    environ: Mapping[str, str], *, context: str, namespace: str | None = None
) -> list[OthersCluster]:
    """List RayClusters without Trainyard's label; None means all namespaces.

    Raises PrerequisiteError for a missing context, OutsideError if the user may
    not list RayClusters.
    """
    kube = api.connect(config.access(environ, context=context))
    try:
        found = kube.list(RAY_CLUSTER, namespace=namespace)
    except ForbiddenError as error:
        hint = None
        if not namespace:
            hint = "Name a namespace whose RayClusters you may list: --namespace NAME"
        raise OutsideError(error.what, where=kube.place, hint=hint) from error
    others = []
    for cluster in found:
        if naming.CLUSTER not in pods.labels_of(cluster):
            others.append(_described(cluster, context))
    return others


def _described(cluster: Object, context: str) -> OthersCluster:
    """Describe a RayCluster, with a file (backend existing) for its service.

    Notes say if the service's name is a guess, or if the cluster needs no
    token.
    """
    name = cluster["metadata"]["name"]
    namespace = cluster["metadata"]["namespace"]
    status = cluster.get("status") or {}
    notes = []
    service = (status.get("head") or {}).get("serviceName")
    if not service:
        service = f"{name}-head-svc"
        notes.append(
            f"RayCluster {namespace}/{name} has no head service yet: KubeRay will call it {service}"
        )

    section: dict[str, Any] = {"service": f"{namespace}/{service}", "context": context}
    file: dict[str, Any] = {"name": as_name(name), "backend": "existing", "existing": section}
    # In this mode KubeRay keeps the token in a Secret that has the RayCluster's name.
    auth = (cluster.get("spec") or {}).get("authOptions") or {}
    if auth.get("mode") == "token":
        section["token_secret"] = name
    else:
        file["auth"] = "none"
        notes.append(
            f"RayCluster {namespace}/{name} has no token: all who reach its service can run code "
            "there"
        )

    is_up = status.get("state") == "ready" and not pods.is_leaving(cluster)
    return OthersCluster(name, namespace, is_up=is_up, file=file, notes=tuple(notes))
