"""Parts of a pod that the cluster file asks for: who it runs as, where it may run, what it sees; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainyard.backends.kuberay import names
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import KubeVolume, PodPlacement, PodSecurity

Values = dict[str, Any]

# Where Ray keeps sessions and logs; a volume of its own, so that they outlive a container that ends.
SESSIONS = "/tmp/ray"  # noqa: S108
# The home of users whom the image does not know.
HOME = "/home/trainyard"

_HOST = "kubernetes.io/hostname"
_UNITS = {"Gi": 2**30, "Mi": 2**20, "Ki": 2**10}


@dataclass(frozen=True)
class Storage:
    """Volumes of a pod, and where its container sees them."""

    volumes: tuple[Values, ...]
    mounts: tuple[Values, ...]


def quantity(size: int) -> str:
    """Return bytes as Kubernetes writes them: `2Gi`, or the plain number."""
    for unit, factor in _UNITS.items():
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def home(security: PodSecurity, *, directory: str) -> dict[str, str]:
    """Return the variables of a user whom the image need not know: a home to write to, and a name.

    Without USER, getpass.getuser() raises KeyError, and with it PyTorch's compiler.
    """
    if not security.run_as_user:
        return {}
    return {"HOME": directory, "USER": "ray", "LOGNAME": "ray"}


def pod_security(security: PodSecurity) -> Values | None:
    """Return as whom all containers of a pod run (core/v1 PodSecurityContext)."""
    found: Values = {
        "runAsUser": security.run_as_user,
        "runAsGroup": security.run_as_group,
        "fsGroup": security.fs_group,
        "fsGroupChangePolicy": None if security.fs_group is None else "OnRootMismatch",
        "runAsNonRoot": True if security.restricted else None,
        "seccompProfile": {"type": "RuntimeDefault"} if security.restricted else None,
    }
    return {name: value for name, value in found.items() if value is not None} or None


def container_security(security: PodSecurity) -> Values | None:
    """Return what the Pod Security Standard `restricted` wants of each container; KubeRay gives it to its own too."""
    if not security.restricted:
        return None
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def tolerations(place: PodPlacement, gpu_resource: str | None) -> list[Values]:
    """Return the taints that a pod puts up with: the file's, and the one of machines with GPUs if it has some."""
    found = [toleration.model_dump(exclude_none=True) for toleration in place.tolerations]
    gpu = {"key": gpu_resource, "operator": "Exists", "effect": "NoSchedule"}
    return [*found, gpu] if gpu_resource else found


def affinity(spec: ClusterSpec, spread: str | None) -> Values | None:
    """Return how the nodes of a cluster are spread over hosts: not at all, where only one host can have the storage."""
    # Of our pods only the nodes: what tries an image for a moment has the cluster's label as well.
    ours = {"matchLabels": {names.CLUSTER: spec.name, "ray.io/is-ray-node": "yes"}}
    term = {"labelSelector": ours, "topologyKey": _HOST}
    storage = spec.kuberay.storage
    if storage is not None and storage.access == "ReadWriteOnce":
        return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if spread == "required":
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if spread == "preferred":
        preferred = [{"weight": 100, "podAffinityTerm": term}]
        return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    return None


def storage(spec: ClusterSpec) -> Storage:
    """Return the volume behind `outputs`, and those that the file lists."""
    volumes: list[Values] = [{"name": "outputs", **_outputs(spec)}]
    mounts: list[Values] = [{"name": "outputs", "mountPath": spec.kuberay.outputs}]
    for index, volume in enumerate(spec.kuberay.volumes):
        name = f"volume-{index}"
        volumes.append({"name": name, **_source(volume)})
        mounts.append({"name": name, "mountPath": volume.target, "readOnly": volume.read_only or None})
    return Storage(tuple(volumes), tuple(mounts))


def _outputs(spec: ClusterSpec) -> Values:
    asked = spec.kuberay.storage
    if asked is None:
        return {"emptyDir": {}}
    return {"persistentVolumeClaim": {"claimName": asked.claim or names.claim(spec.name)}}


def _source(volume: KubeVolume) -> Values:
    if volume.claim:
        return {"persistentVolumeClaim": {"claimName": volume.claim, "readOnly": volume.read_only or None}}
    if volume.config_map:
        return {"configMap": {"name": volume.config_map}}
    if volume.secret:
        return {"secret": {"secretName": volume.secret}}
    # A directory that is missing there is an error, not an empty directory.
    return {"hostPath": {"path": volume.host_path, "type": "Directory"}}
