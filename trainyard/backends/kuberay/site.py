"""The former words for `location`, until nobody uses them."""

from __future__ import annotations

from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import location, naming
from trainyard.backends.kuberay.location import (
    Location,
    is_ours,
    ray_cluster,
    refuse_foreign,
)
from trainyard.seams.kube.types import POD, Object
from trainyard.spec.cluster import ClusterSpec

Site = Location
__all__ = ["Site", "find", "is_ours", "kubeconfig", "moved", "place", "pods", "ray_cluster", "refuse_foreign"]


def find(spec: ClusterSpec, tools: Tools) -> Site:
    return location.find(spec, tools, spec.kuberay)


def kubeconfig(spec: ClusterSpec, tools: Tools) -> str | None:
    return location.kubeconfig(tools, spec.kuberay)


def moved(spec: ClusterSpec, tools: Tools) -> str:
    return location.moved(tools, spec.kuberay)


def place(site: Site) -> str:
    return str(site)


def pods(site: Site) -> list[Object]:
    """Return the pods that KubeRay made for the cluster, the head first, then the oldest."""
    found = site.kube.list(POD, namespace=site.namespace, labels=naming.of_ray_cluster(site.name))

    def order(pod: Object) -> tuple[bool, str, str]:
        metadata = pod["metadata"]
        is_worker = metadata["labels"].get(naming.RAY_NODE_TYPE) != "head"
        return is_worker, metadata.get("creationTimestamp") or "", metadata["name"]

    return sorted(found, key=order)
