"""A pod that does one thing on a Kubernetes node, as the nodes of the cluster would, and ends; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.backends.kuberay import names
from trainyard.backends.kuberay.documents import pod_parts
from trainyard.seams.kube.types import POD, Object
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import PodPlacement

# What the pod is for: that is how it is found again, beside the cluster's label.
PURPOSE = "io.trainyard/errand"
CONTAINER = "errand"
# What runs in it ends at once, and holds nothing.
GRACE_SECONDS = 1
# `import ray` takes 150 MB, `import torch` up to 2 GiB; asked for is next to nothing, so that a full node has room.
REQUESTS = {"cpu": "10m", "memory": "16Mi"}
LIMITS = {"cpu": "2", "memory": "4Gi"}


@dataclass(frozen=True)
class Wanted:
    """What the pod does and where. `host` None: wherever there is room; `seconds` is when its kubelet ends it.

    `place` says where the group may run whose node it stands for; `gpus` are real ones.
    """

    name: str
    purpose: str
    image: str
    command: Sequence[str]
    pull_secrets: Sequence[str]
    place: PodPlacement
    seconds: int
    host: str | None = None
    gpus: int = 0


def pod(spec: ClusterSpec, wanted: Wanted) -> Object:
    """Return the pod: with the cluster's account, user, labels and logins, and next to no resources but GPUs."""
    section = spec.kuberay
    gpus = {section.gpu_resource: str(wanted.gpus)} if wanted.gpus else {}
    made = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": wanted.seconds,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "serviceAccountName": section.service_account,
        "imagePullSecrets": [{"name": name} for name in wanted.pull_secrets] or None,
        "nodeSelector": dict(wanted.place.node_selector) or None,
        "tolerations": pod_parts.tolerations(wanted.place, section.gpu_resource if gpus else None) or None,
        "affinity": _on(wanted.host),
        "runtimeClassName": wanted.place.runtime_class if gpus else None,
        "priorityClassName": wanted.place.priority_class,
        "securityContext": pod_parts.pod_security(section.security),
        "containers": [_container(spec, wanted, gpus)],
    }
    metadata = {
        "name": wanted.name,
        "labels": {**section.labels, **names.labels(spec.name), PURPOSE: wanted.purpose},
        "annotations": dict(section.annotations) or None,
    }
    return {"apiVersion": POD.api, "kind": POD.name, "metadata": _given(metadata), "spec": _given(made)}


def of_purpose(cluster: str, purpose: str) -> str:
    """Return the label selector of the pods that a cluster has for a purpose."""
    return f"{names.of_cluster(cluster)},{PURPOSE}={purpose}"


def of_any(cluster: str) -> str:
    """Return the label selector of a cluster's pods for any purpose."""
    return f"{names.of_cluster(cluster)},{PURPOSE}"


def is_errand(pod: Object, cluster: str, namespace: str) -> bool:
    """Say whether a pod is one of a cluster's errands; one that was left behind goes before the next one begins."""
    labels = pod["metadata"].get("labels") or {}
    is_of_cluster = labels.get(names.CLUSTER) == cluster and pod["metadata"].get("namespace") == namespace
    return is_of_cluster and PURPOSE in labels


def _container(spec: ClusterSpec, wanted: Wanted, gpus: dict[str, str]) -> dict[str, Any]:
    home = pod_parts.home(spec.kuberay.security, directory="/tmp")  # noqa: S108 (it is gone with the pod)
    # An image may ask for every GPU (NVIDIA_VISIBLE_DEVICES=all in its ENV), and a host may grant it by default.
    hidden = {} if gpus else {"NVIDIA_VISIBLE_DEVICES": "void"}
    return _given(
        {
            "name": CONTAINER,
            "image": wanted.image,
            # Whatever is there already, the registry is asked.
            "imagePullPolicy": "Always",
            "command": list(wanted.command),
            "env": [{"name": name, "value": value} for name, value in sorted({**home, **hidden}.items())] or None,
            "resources": {"limits": {**LIMITS, **gpus}, "requests": {**REQUESTS, **gpus}},
            "securityContext": pod_parts.container_security(spec.kuberay.security),
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
    )


def _on(host: str | None) -> dict[str, Any] | None:
    """Return what ties a pod to a node without keeping the scheduler from saying why it has no room (as DaemonSets)."""
    if host is None:
        return None
    this = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [host]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [this]}}}


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
