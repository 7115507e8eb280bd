"""What stands in the pod of a Ray node: the values of kuberay/pod.yaml.j2; pure."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard import render
from trainyard.backends import ray_nodes
from trainyard.backends.kuberay import names
from trainyard.backends.kuberay.documents import pod_parts
from trainyard.backends.kuberay.documents.nodes import Node
from trainyard.backends.kuberay.documents.pod_parts import HOME, SESSIONS, Values, quantity
from trainyard.spec.cluster import ClusterSpec

__all__ = ["SESSIONS", "values"]

GCS_PORT = 6379
# Where Ray's agent of each node answers (ray/_private/ray_constants.py, DEFAULT_DASHBOARD_AGENT_LISTEN_PORT).
AGENT_PORT = 52365
# From SIGTERM Ray takes 2 s to end its processes; a worker whose head is gone would wait for it (15 s were seen).
GRACE_SECONDS = 5


def values(
    spec: ClusterSpec,
    node: Node,
    *,
    image: str,
    pull_secrets: tuple[str, ...],
    simulated: bool,
    with_autoscaler: bool,
) -> Values:
    """Return the values of a group's pods; None for what is to be left out."""
    section = spec.kuberay
    place = section.placement(node.group)
    real_gpus = 0 if simulated else node.gpus
    limits = _limits(spec, node, real_gpus)
    storage = pod_parts.storage(spec)
    return {
        "labels": {**section.labels, **names.labels(spec.name)},
        "annotations": dict(section.annotations) or None,
        "service_account": section.service_account,
        # Nothing on a node asks Kubernetes anything, unless the file gives it an account, or the autoscaler is there.
        "has_account": None if section.service_account or with_autoscaler else False,
        "pull_secrets": [{"name": name} for name in pull_secrets] or None,
        "grace_seconds": GRACE_SECONDS,
        "node_selector": dict(place.node_selector) or None,
        "tolerations": pod_parts.tolerations(place, section.gpu_resource if real_gpus else None) or None,
        "affinity": pod_parts.affinity(spec, place.spread),
        "runtime_class": place.runtime_class if real_gpus else None,
        "priority_class": place.priority_class,
        "pod_security": pod_parts.pod_security(section.security),
        "container": names.HEAD_CONTAINER if node.is_head else names.WORKER_CONTAINER,
        "image": image,
        "ports": _ports(node),
        "env": _env(spec, has_gpus=bool(real_gpus)),
        "limits": limits,
        "requests": _requests(spec, node, limits),
        "container_security": pod_parts.container_security(section.security),
        "started": _started(node),
        "alive": {"path": "/api/local_raylet_healthz", "port": AGENT_PORT},
        "mounts": [*_own_mounts(spec, node)[1], *storage.mounts],
        "volumes": [*_own_mounts(spec, node)[0], *storage.volumes],
    }


def _started(node: Node) -> Values:
    """Return what is asked until the node is there; both paths answer without the token.

    The dashboard is the last of the head's parts that a run needs, and the GCS must be there for it to answer
    (ray/dashboard/http_server_head.py and http_server_agent.py, PUBLIC_EXACT_PATHS).
    """
    if node.is_head:
        return {"path": "/api/gcs_healthz", "port": names.DASHBOARD_PORT}
    return {"path": "/api/local_raylet_healthz", "port": AGENT_PORT}


def _ports(node: Node) -> list[Values] | None:
    """Return what the head's service leads to; KubeRay adds the metrics. Ray Client's port is not among them."""
    if not node.is_head:
        return None
    ports = {"gcs-server": GCS_PORT, "dashboard": names.DASHBOARD_PORT}
    return [{"name": name, "containerPort": port} for name, port in ports.items()]


def _env(spec: ClusterSpec, *, has_gpus: bool) -> list[dict[str, str]]:
    # An image may ask for every GPU (NVIDIA_VISIBLE_DEVICES=all in its ENV), and a host may grant it by default.
    hidden = {} if has_gpus else {"NVIDIA_VISIBLE_DEVICES": "void"}
    home = pod_parts.home(spec.kuberay.security, directory=HOME)
    variables: Mapping[str, str] = {**hidden, **home, **spec.env, **ray_nodes.settings()}
    # To Kubernetes `$(NAME)` is a variable, and `$$` a dollar sign.
    return [{"name": name, "value": render.dollars_doubled(value)} for name, value in sorted(variables.items())]


def _limits(spec: ClusterSpec, node: Node, gpus: int) -> dict[str, str]:
    limits = {"cpu": str(node.cpu_limit), "memory": quantity(node.memory)}
    return {**limits, spec.kuberay.gpu_resource: str(gpus)} if gpus else limits


def _requests(spec: ClusterSpec, node: Node, limits: Mapping[str, str]) -> dict[str, str]:
    """Return what the scheduler is asked for: the limits, unless the file says less."""
    less = spec.kuberay.requests
    requests = dict(limits)
    if less.cpus is not None and less.cpus < node.cpu_limit:
        requests["cpu"] = f"{round(less.cpus * 1000)}m"
    if less.memory is not None and less.memory < node.memory:
        requests["memory"] = quantity(less.memory)
    return requests


def _own_mounts(spec: ClusterSpec, node: Node) -> tuple[list[Values], list[Values]]:
    """Return the volumes that Ray needs, and where they are mounted; KubeRay would call the first two the same."""
    volumes: list[Values] = [
        {"name": "shared-mem", "emptyDir": {"medium": "Memory", "sizeLimit": quantity(node.shared_memory)}},
        {"name": "ray-logs", "emptyDir": {}},
    ]
    mounts: list[Values] = [
        {"name": "shared-mem", "mountPath": "/dev/shm"},  # noqa: S108
        {"name": "ray-logs", "mountPath": SESSIONS},
    ]
    if pod_parts.home(spec.kuberay.security, directory=HOME):
        volumes.append({"name": "home", "emptyDir": {}})
        mounts.append({"name": "home", "mountPath": HOME})
    return volumes, mounts
