"""Names and labels by which later commands find a cluster's objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CLUSTER = "io.trainyard/cluster"
# `cluster.down --purge` removes only namespaces and CRDs with this label.
MADE_BY = "app.kubernetes.io/managed-by"
US = "trainyard"
# Annotations of the RayCluster. The outputs claim has OWNER, too.
IMAGE = "io.trainyard/image"
SIMULATED = "io.trainyard/simulated-gpus"
OWNER = "io.trainyard/owner"

# The leash's settings as JSON, on the leash's Deployment.
LEASH = "io.trainyard/leash"

# KubeRay's own labels (ray-operator/controllers/ray/utils/constant.go).
RAY_CLUSTER = "ray.io/cluster"
RAY_NODE_TYPE = "ray.io/node-type"
RAY_GROUP = "ray.io/group"
HEAD_CONTAINER = "ray-head"
WORKER_CONTAINER = "ray-worker"
WAIT_CONTAINER = "wait-gcs-ready"
DASHBOARD_PORT = 8265


def of_cluster(name: str) -> str:
    return f"{CLUSTER}={name}"


def of_ray_cluster(name: str) -> str:
    return f"{RAY_CLUSTER}={name}"


def labels(name: str) -> dict[str, str]:
    return {CLUSTER: name, MADE_BY: US}


def token_secret(name: str) -> str:
    """Return the name that KubeRay 1.5 expects."""
    return name


# Cluster names have no dots, so no token's Secret has the name of a pull Secret. `image.verify` has
# its own Secret, because another command may change the cluster's pull Secret at the same time.
def pull_secret(name: str) -> str:
    return f"{name}.pull"


def verify_secret(name: str) -> str:
    return f"{name}.verify"


def claim(name: str) -> str:
    return f"{name}-outputs"


def of_pods(name: str) -> str:
    """Return the name that disruption budget and network policy share."""
    return f"{name}-nodes"


def node_name(pod: Mapping[str, Any]) -> str:
    """Return a Ray node's name: `head`, or group and pod suffix (`gpu-x7k2p`).

    `ray start` in the pod makes the same name from $HOSTNAME (kuberay/manifest,
    `_ray_start`).
    """
    pod_labels = pod["metadata"].get("labels") or {}
    if pod_labels.get(RAY_NODE_TYPE) == "head":
        return "head"
    group = pod_labels.get(RAY_GROUP, "worker")
    _, _, end = pod["metadata"]["name"].rpartition("-")
    return f"{group}-{end}"
