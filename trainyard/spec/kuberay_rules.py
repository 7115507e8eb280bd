"""What a whole cluster file must get right if Kubernetes is to run it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard.spec.fields import Complaint
from trainyard.spec.kubernetes import KuberaySection
from trainyard.spec.nodes import Head, WorkerGroup
from trainyard.spec.units import SIZES, format_size
from trainyard.spec.yaml_source import KeyPath

# Memory is a limit here, and with less the kernel ends Ray itself (measured with Ray 2.60; docs/kuberay.md).
SMALLEST_HEAD = 1024 * SIZES["MiB"]
SMALLEST_WORKER = 512 * SIZES["MiB"]

# KubeRay gives each of these a meaning or a value of its own, or refuses the cluster for it (ray-operator,
# controllers/ray/common/pod.go and utils/validation.go).
KUBERAY_VARIABLES = frozenset(
    {
        "FQ_RAY_IP",
        "KUBERAY_GEN_RAY_START_CMD",
        "RAY_ADDRESS",
        "RAY_CLOUD_INSTANCE_ID",
        "RAY_CLUSTER_NAME",
        "RAY_IP",
        "RAY_NODE_TYPE_NAME",
        "RAY_REDIS_ADDRESS",
        "RAY_enable_autoscaler_v2",
        "REDIS_PASSWORD",
        "REDIS_USERNAME",
    }
)
# What KubeRay calls the head's group: it would take a group of that name for the head, and the head for one of it.
HEAD_GROUP = "headgroup"


def complaints(kuberay: KuberaySection, given: Mapping[str, Any]) -> Iterator[Complaint]:
    """Yield what is wrong with a file whose nodes Kubernetes is to run; `given` are the fields that are right."""
    head: Head | None = given.get("head")
    workers: Sequence[WorkerGroup] = given.get("workers") or ()
    yield from _names(given.get("name"), [group.name for group in workers])
    for name in given.get("env") or {}:
        if name in KUBERAY_VARIABLES:
            yield Complaint(("env", name), "is set by KubeRay (backend kuberay)", root=True)
    shapes: dict[KeyPath, Head | WorkerGroup | None] = {("head",): head}
    shapes |= {("workers", index): group for index, group in enumerate(workers)}
    yield from _memories({path: node.memory for path, node in shapes.items() if node and node.memory}, kuberay)
    yield from _storage(kuberay, nodes=1 + sum(group.most for group in workers))


def _names(name: str | None, groups: Sequence[str]) -> Iterator[Complaint]:
    """Yield every name that Kubernetes or KubeRay would refuse, or mistake; both allow less than we do."""
    if name is not None and name.endswith("-"):
        yield Complaint(("name",), "must not end with '-' on Kubernetes", name, root=True)
    for index, group in enumerate(groups):
        path = ("workers", index, "name")
        if group.endswith("-"):
            yield Complaint(path, "must not end with '-' on Kubernetes", group, root=True)
        if group == HEAD_GROUP:
            yield Complaint(path, f"must not be {HEAD_GROUP!r}: so KubeRay calls the head's group", group, root=True)


def _memories(memories: Mapping[KeyPath, int], kuberay: KuberaySection) -> Iterator[Complaint]:
    """Yield every memory that is too small for a limit; `memories` are those of the file, by the nodes' paths."""
    for path, memory in memories.items():
        smallest = SMALLEST_HEAD if path[0] == "head" else SMALLEST_WORKER
        if memory < smallest:
            message = f"must be at least {format_size(smallest)} with the backend kuberay, where it is a limit"
            yield Complaint((*path, "memory"), message, format_size(memory), root=True)
    most = max(memories.values(), default=None)
    if kuberay.shm_size is not None and most is not None and kuberay.shm_size >= most:
        message = f"must be less than the memory of a node (the most is {format_size(most)}): it counts as memory"
        yield Complaint(("shm_size",), message, format_size(kuberay.shm_size))


def _storage(kuberay: KuberaySection, *, nodes: int) -> Iterator[Complaint]:
    """Yield whatever keeps nodes from their storage; `nodes` are the most that can exist."""
    access = kuberay.storage.access if kuberay.storage else None
    if access == "ReadWriteOncePod" and nodes > 1:
        message = f"lets a single pod in, and there are up to {nodes} nodes"
        yield Complaint(("storage", "access"), message, access)
    spreads: dict[KeyPath, str | None] = {("spread",): kuberay.spread}
    spreads |= {("groups", name, "spread"): placement.spread for name, placement in kuberay.groups.items()}
    for path, spread in spreads.items():
        if access == "ReadWriteOnce" and nodes > 1 and spread not in (None, "none"):
            message = "must be left out with storage.access ReadWriteOnce, which keeps all nodes on one host"
            yield Complaint(path, message, spread)
