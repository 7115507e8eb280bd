"""What a Ray node of each group is on Kubernetes: what the cluster file says, and what holds where it says nothing."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.backends import ray_nodes
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import KuberaySection

HEAD = "head"
# There is no "whole machine" here: a pod that does not say what it needs gets nothing for sure.
DEFAULT_CPUS = 1
DEFAULT_MEMORY = 2 * 1024**3


@dataclass(frozen=True)
class Node:
    """A node of a group. Sizes in bytes: `memory` is all that it may use, with the object store in it.

    `cpus` are what Ray hands out; 0 keeps tasks off the node.
    """

    group: str
    cpus: int
    memory: int
    object_store: int
    shared_memory: int
    gpus: int

    @property
    def is_head(self) -> bool:
        return self.group == HEAD

    @property
    def cpu_limit(self) -> int:
        """Return how many CPUs it may use: Ray itself needs some as well."""
        return max(self.cpus, 1)


def nodes(spec: ClusterSpec, section: KuberaySection) -> tuple[Node, ...]:
    """Return what a node of each group is, the head first."""
    head = _node(section, HEAD, spec.head.cpus, spec.head.memory, spec.head.gpus)
    return (head, *(_node(section, group.name, group.cpus, group.memory, group.gpus) for group in spec.workers))


def _node(section: KuberaySection, group: str, cpus: int | None, memory: int | None, gpus: int) -> Node:
    size = DEFAULT_MEMORY if memory is None else memory
    asked = section.shm_size
    # It counts as memory: a small head beside large workers cannot have what they have.
    shared_memory, object_store = ray_nodes.shared_memory(size, asked if asked is not None and asked < size else None)
    return Node(
        group=group,
        cpus=DEFAULT_CPUS if cpus is None else cpus,
        memory=size,
        object_store=object_store,
        # In whole MiB, so that it reads well where it is shown.
        shared_memory=-(-shared_memory // ray_nodes.MEBIBYTE) * ray_nodes.MEBIBYTE,
        gpus=gpus,
    )
