"""Names and labels of a cluster's objects on Kubernetes, by which they are found again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CLUSTER = "io.trainyard/cluster"
# The label of a namespace or an operator that Trainyard made; `cluster.down --purge` removes
# nothing else.
MADE_BY = "app.kubernetes.io/managed-by"
US = "trainyard"
# Annotations of the RayCluster.
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
    """Return the name of the Secret with the cluster's token, as KubeRay 1.5 expects it."""
    return name


# Secrets that images are pulled with; no cluster's token can have these names, for their dots.
# `image.verify` has a separate one: the cluster's may come or go meanwhile.~
def pull_secret(name: str) -> str:
    return f"{name}.pull"


def verify_secret(name: str) -> str:
    return f"{name}.verify"


def claim(name: str) -> str:
    return f"{name}-outputs"


def of_pods(name: str) -> str:
    """Return the name of the disruption budget and of the network policy of a cluster's pods."""
    return f"{name}-nodes"


def node_name(pod: Mapping[str, Any]) -> str:
    """Return a pod's node name: `head`, or group and end of the pod's name (`gpu-x7k2p`).

    The pod's own command makes the same name from $HOSTNAME (kuberay/raycluster.yaml.j2).
    """
    pod_labels = pod["metadata"].get("labels") or {}
    if pod_labels.get(RAY_NODE_TYPE) == "head":
        return "head"
    group = pod_labels.get(RAY_GROUP, "worker")
    _, _, end = pod["metadata"]["name"].rpartition("-")
    return f"{group}-{end}"
