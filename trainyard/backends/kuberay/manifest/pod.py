"""A Ray node's pod: its size, user, placement, volumes and environment.

The template is kuberay/pod.yaml.j2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from trainyard_runner.wire.names import STORAGE

from trainyard import render
from trainyard.backends.kuberay import naming
from trainyard.backends.kuberay.groups import HEAD
from trainyard.backends.shared import ray_nodes
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.groups import Head, WorkerGroup
from trainyard.spec.kubernetes import (
    HOME,
    SESSIONS,
    SHARED_MEMORY,
    KuberaySection,
    KubeVolume,
    PodGroup,
    PodSecurity,
    Requests,
    Toleration,
)
from trainyard.spec.units import GIB

# Kubernetes guarantees nothing to a pod that requests nothing.
DEFAULT_CPUS = 1
DEFAULT_MEMORY = 2 * GIB
Values = dict[str, Any]

# The ports of the head's service; KubeRay adds the metrics port. Ray Client's port is left out on
# purpose.
PORTS = [
    {"name": "gcs-server", "containerPort": 6379},
    {"name": "dashboard", "containerPort": naming.DASHBOARD_PORT},
]
# The probes of a node. Both paths answer without the token (ray/dashboard/http_server_head.py and
# http_server_agent.py, PUBLIC_EXACT_PATHS). HEAD_ALIVE asks the dashboard, which starts last on the
# head and needs the GCS to answer. ALIVE asks a node's agent, at
# DEFAULT_DASHBOARD_AGENT_LISTEN_PORT.
HEAD_ALIVE = {"path": "/api/gcs_healthz", "port": naming.DASHBOARD_PORT}
ALIVE = {"path": "/api/local_raylet_healthz", "port": 52365}
# After SIGTERM Ray ends its processes in 2 s. A worker whose head is gone would wait longer (15 s
# were seen).
GRACE_SECONDS = 5
_HOST = "kubernetes.io/hostname"
_UNITS = {"Gi": 2**30, "Mi": 2**20, "Ki": 2**10}


@dataclass(frozen=True)
class Inputs:
    """All inputs of the rendered objects.

    `image` is the head's; `images` has the images of groups that use another.
    `owner` is the cluster's owner.
    """

    spec: ClusterSpec
    section: KuberaySection
    image: str
    pull_secrets: tuple[str, ...] = ()
    owner: str = ""
    images: Mapping[str, str] = field(default_factory=dict)

    @property
    def simulated(self) -> bool:
        """Say whether Ray gets GPUs that no pod requests."""
        has_gpus = self.spec.head.gpus or any(group.gpus for group in self.spec.workers)
        return self.section.simulated_gpus and bool(has_gpus)


@dataclass(frozen=True)
class NodeSize:
    """The size of each node of a group; all memory is in bytes.

    `memory` is the node's limit, object store included. `cpus` are the CPUs
    that Ray gives to tasks; 0 keeps tasks off the node. `cpu_limit` is the
    container's and never 0: Ray needs CPUs.
    """

    group: str
    cpus: int
    cpu_limit: int
    memory: int
    object_store: int
    shared_memory: int
    gpus: int
    resources: Mapping[str, int]
    labels: Mapping[str, str]
    ray_start: Mapping[str, object]

    @property
    def is_head(self) -> bool:
        return self.group == HEAD


def node_size(section: KuberaySection, declared: Head | WorkerGroup) -> NodeSize:
    """Return the size of a group's nodes: the file's, else the default."""
    cpus = DEFAULT_CPUS
    if declared.cpus is not None:
        cpus = declared.cpus
    memory = DEFAULT_MEMORY
    if declared.memory is not None:
        memory = declared.memory

    # Shared memory counts as memory of the pod. kuberay.shm_size is the same for all nodes: a node
    # with less memory, such as a small head, gets the default.
    shm_size = None
    if section.shm_size is not None and section.shm_size < memory:
        shm_size = section.shm_size

    shared_memory, object_store = ray_nodes.shared_memory(memory, shm_size)
    name = HEAD
    if isinstance(declared, WorkerGroup):
        name = declared.name
    requested = section.groups.get(name, PodGroup()).requests.cpus
    return NodeSize(
        group=name,
        cpus=cpus,
        cpu_limit=cpus or ceil(requested or 1),
        memory=memory,
        object_store=object_store,
        # Whole MiB are shorter numbers in Kubernetes' output.
        shared_memory=-(-shared_memory // ray_nodes.MEBIBYTE) * ray_nodes.MEBIBYTE,
        gpus=declared.gpus,
        resources=declared.resources,
        labels=declared.labels,
        ray_start=declared.ray_start,
    )


def values(inputs: Inputs, node: NodeSize, *, with_autoscaler: bool) -> Values:
    """Return the template's values for a group's pods; None is not rendered."""
    spec = inputs.spec
    section = inputs.section
    gpus = node.gpus
    if inputs.simulated:
        gpus = 0

    place = section.pods(node.group, gpus=gpus)
    tolerations = list(place.tolerations)
    runtime_class = None
    if gpus:
        tolerations.append(Toleration(key=section.gpu_resource, effect="NoSchedule"))
        runtime_class = place.runtime_class

    # Only a pod with a service account in the file, or with the autoscaler, gets a token for the
    # Kubernetes API. None keeps Kubernetes' default.
    has_account = None
    if not (section.service_account or with_autoscaler):
        has_account = False

    volumes, mounts = _volumes(spec, section, node)
    return {
        "labels": {**place.labels, **naming.labels(spec.name)},
        "annotations": dict(place.annotations) or None,
        "service_account": section.service_account,
        "has_account": has_account,
        "pull_secrets": [{"name": name} for name in inputs.pull_secrets] or None,
        "grace_seconds": GRACE_SECONDS,
        "node_selector": dict(place.node_selector) or None,
        "tolerations": [toleration.model_dump(exclude_none=True) for toleration in tolerations]
        or None,
        "affinity": _affinity(spec, section, place.spread),
        "runtime_class": runtime_class,
        "priority_class": place.priority_class,
        "pod_security": pod_security(section.security),
        "mounts": mounts,
        "volumes": volumes,
        **_container(inputs, node, place, gpus),
    }


def _container(inputs: Inputs, node: NodeSize, place: PodGroup, gpus: int) -> Values:
    section = inputs.section
    limits = {"cpu": str(node.cpu_limit), "memory": quantity(node.memory)}
    if gpus:
        limits[section.gpu_resource] = str(gpus)

    name = naming.WORKER_CONTAINER
    ports = None
    started = ALIVE
    if node.is_head:
        name = naming.HEAD_CONTAINER
        ports = PORTS
        started = HEAD_ALIVE

    return {
        "container": name,
        "image": inputs.images.get(node.group, inputs.image),
        "ports": ports,
        "env": _env(inputs.spec, section, node, place.env, has_gpus=bool(gpus)),
        "limits": limits,
        "requests": _requests(place.requests, node, limits),
        "container_security": container_security(section.security),
        "started": started,
        "alive": ALIVE,
    }


def cpus(number: float) -> str:
    """Return CPUs in Kubernetes' notation: `500m`."""
    return f"{round(number * 1000)}m"


def quantity(size: int) -> str:
    """Write bytes in Kubernetes' notation: `2Gi`, else without a unit."""
    for unit, factor in _UNITS.items():
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def home(security: PodSecurity, *, directory: str) -> dict[str, str]:
    """Return HOME and USER for a `run_as_user` that the image may not know.

    Without USER, getpass.getuser() raises KeyError, and PyTorch's compiler
    fails.
    """
    if security.run_as_user:
        return {"HOME": directory, "USER": "ray", "LOGNAME": "ray"}
    return {}


def pod_security(security: PodSecurity) -> Values | None:
    """Return a pod's securityContext (PodSecurityContext): user and groups."""
    found: Values = {
        "runAsUser": security.run_as_user,
        "runAsGroup": security.run_as_group,
        "fsGroup": security.fs_group,
    }
    if security.fs_group is not None:
        found["fsGroupChangePolicy"] = "OnRootMismatch"
    if security.restricted:
        found["runAsNonRoot"] = True
    if security.hardened:
        found["seccompProfile"] = {"type": "RuntimeDefault"}
    return {name: value for name, value in found.items() if value is not None} or None


def container_security(security: PodSecurity) -> Values | None:
    """Return a container's securityContext; None without `hardened`.

    KubeRay copies it to its own containers.
    """
    if not security.hardened:
        return None
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def _requests(less: Requests, node: NodeSize, limits: Mapping[str, str]) -> dict[str, str]:
    found = dict(limits)
    if less.cpus is not None and less.cpus < node.cpu_limit:
        found["cpu"] = cpus(less.cpus)
    if less.memory is not None and less.memory < node.memory:
        found["memory"] = quantity(less.memory)
    return found


def _affinity(spec: ClusterSpec, section: KuberaySection, spread: str | None) -> Values | None:
    """Return the affinity that spreads nodes over hosts, or keeps them on one.

    ReadWriteOnce storage works on one host only, so all nodes must share a
    host.
    """
    # The second label excludes probe pods, which have the cluster's label as well.
    ours = {"matchLabels": {naming.CLUSTER: spec.name, "ray.io/is-ray-node": "yes"}}
    term = {"labelSelector": ours, "topologyKey": _HOST}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    if section.storage is not None and section.storage.access == "ReadWriteOnce":
        return {"podAffinity": required}
    if spread == "required":
        return {"podAntiAffinity": required}
    if spread == "preferred":
        weighted = {"weight": 100, "podAffinityTerm": term}
        return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}}
    return None


def _env(
    spec: ClusterSpec,
    section: KuberaySection,
    node: NodeSize,
    own: Mapping[str, str],
    *,
    has_gpus: bool,
) -> list[dict[str, str]]:
    # A node without GPUs must see none: an image may set NVIDIA_VISIBLE_DEVICES=all, which a host
    # may grant by default.
    hidden = {}
    if not has_gpus:
        hidden = {"NVIDIA_VISIBLE_DEVICES": "void"}

    variables = {
        **hidden,
        **home(section.security, directory=HOME),
        **spec.env,
        **own,
        **ray_nodes.settings(),
    }

    if node.is_head and section.storage is not None:
        variables[STORAGE] = f"{section.outputs}/.trainyard/{spec.name}"

    # Kubernetes expands `$(NAME)`; `$$` gives a plain dollar sign.
    return [
        {"name": name, "value": render.dollars_doubled(value)}
        for name, value in sorted(variables.items())
    ]


def _volumes(
    spec: ClusterSpec, section: KuberaySection, node: NodeSize
) -> tuple[list[Values], list[Values]]:
    """Return the volumes and their mounts.

    The first two have KubeRay's names, so that KubeRay adds no duplicates.
    """
    memory = {"medium": "Memory", "sizeLimit": quantity(node.shared_memory)}
    outputs: Values = {"emptyDir": {}}
    if section.storage is not None:
        outputs = {
            "persistentVolumeClaim": {"claimName": section.storage.claim or naming.claim(spec.name)}
        }

    volumes: list[Values] = [
        {"name": "shared-mem", "emptyDir": memory},
        {"name": "ray-logs", "emptyDir": {}},
        {"name": "outputs", **outputs},
    ]

    targets = {"shared-mem": SHARED_MEMORY, "ray-logs": SESSIONS, "outputs": section.outputs}
    if home(section.security, directory=HOME):
        volumes.append({"name": "home", "emptyDir": {}})
        targets["home"] = HOME

    mounts: list[Values] = [{"name": name, "mountPath": path} for name, path in targets.items()]
    for index, volume in enumerate(section.volumes):
        name = f"volume-{index}"
        read_only = volume.read_only or None
        volumes.append({"name": name, **_source(volume)})
        mounts.append({"name": name, "mountPath": volume.target, "readOnly": read_only})

    return volumes, mounts


def _source(volume: KubeVolume) -> Values:
    if volume.claim:
        claim = {"claimName": volume.claim, "readOnly": volume.read_only or None}
        return {"persistentVolumeClaim": claim}

    if volume.config_map:
        return {"configMap": {"name": volume.config_map}}
    if volume.secret:
        return {"secret": {"secretName": volume.secret}}

    if volume.empty_dir:
        empty_dir = {}
        if volume.empty_dir.memory:
            empty_dir["medium"] = "Memory"
        if volume.empty_dir.size is not None:
            empty_dir["sizeLimit"] = quantity(volume.empty_dir.size)
        return {"emptyDir": empty_dir}

    # With this type, a path that the host lacks is an error. The default makes an empty directory.
    return {"hostPath": {"path": volume.host_path, "type": "Directory"}}
