"""Sematic's words for a Ray cluster, one to one: programs that use them change their imports.

CPUs are rounded up to whole ones, as KubeRay does for Ray. In a block `ray` refuses to start: it would be another Ray
than the cluster. The work is dispatched: `with RayCluster(...) as cluster: cluster.dispatch(job)`.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard import versions
from trainyard.api.cluster import Cluster, Teardown
from trainyard.api.job import Overrides, as_overrides
from trainyard.errors import RequestError


@dataclass(frozen=True)
class RayNodeConfig:
    """What one node has; `memory_gb` is in gibibytes."""

    cpu: float
    memory_gb: float
    gpu_count: int = 0

    def keys(self) -> dict[str, Any]:
        """Return the keys of a node in a cluster file."""
        return {"cpus": math.ceil(self.cpu), "memory": f"{round(self.memory_gb * 1024)}MiB", "gpus": self.gpu_count}


@dataclass(frozen=True)
class ScalingGroup:
    """Workers that are alike: at least `min_workers`, and at most `max_workers`, which may be the same."""

    worker_nodes: RayNodeConfig
    min_workers: int = 1
    max_workers: int = 1

    def keys(self, index: int) -> dict[str, Any]:
        """Return the keys of a worker group in a cluster file."""
        is_fixed = self.max_workers == self.min_workers
        size = {"count": self.min_workers} if is_fixed else {"min": self.min_workers, "max": self.max_workers}
        return {"name": f"worker-group-{index}", **size, **self.worker_nodes.keys()}


@dataclass(frozen=True)
class AutoscalerConfig:
    """What Sematic gives to the autoscaler; here its size is Trainyard's: 0.5 CPUs and 512 MiB."""

    cpu: float
    memory_gb: float


@dataclass(frozen=True)
class RayClusterConfig:
    """A head, and groups of workers. `ray_version` must be Trainyard's, which all nodes have."""

    head_node: RayNodeConfig
    scaling_groups: Sequence[ScalingGroup] = ()
    autoscaler_config: AutoscalerConfig | None = None
    ray_version: str = versions.RAY

    def __post_init__(self) -> None:
        if self.ray_version != versions.RAY:
            what = f"ray_version is {self.ray_version}, and nodes have Ray {versions.RAY}"
            raise RequestError(what, where="RayClusterConfig", hint=f"Leave it out, or write {versions.RAY!r}.")

    def keys(self) -> dict[str, Any]:
        """Return what a cluster file would say.

        >>> SimpleRayCluster(3, RayNodeConfig(cpu=1.5, memory_gb=2.5)).keys()["workers"]
        [{'name': 'worker-group-0', 'count': 2, 'cpus': 2, 'memory': '2560MiB', 'gpus': 0}]
        """
        workers = [group.keys(index) for index, group in enumerate(self.scaling_groups) if group.max_workers]
        return {"head": self.head_node.keys(), "workers": workers}


def SimpleRayCluster(
    n_nodes: int,
    node_config: RayNodeConfig,
    max_nodes: int | None = None,
    autoscaler_config: AutoscalerConfig | None = None,
) -> RayClusterConfig:
    """Return a cluster of nodes that are alike, the head among them; with `max_nodes` it may grow.

    Raises RequestError for numbers of nodes that cannot be.
    """
    most = n_nodes if max_nodes is None else max_nodes
    if n_nodes < 1 or most < n_nodes:
        what = f"n_nodes={n_nodes}, max_nodes={max_nodes}: at least 1, and not more than max_nodes"
        raise RequestError(what, where="SimpleRayCluster")
    group = ScalingGroup(node_config, min_workers=n_nodes - 1, max_workers=most - 1)
    return RayClusterConfig(node_config, (group,), autoscaler_config)


def RayCluster(
    config: RayClusterConfig,
    forward_logs: bool | None = None,
    activation_timeout_seconds: float = 900.0,
    *,
    name: str | None = None,
    file: str | Path | None = None,
    backend: str | None = None,
    set: Overrides = (),
    teardown: Teardown = "made",
) -> Cluster:
    """Return a cluster of this shape, by default under a name of its own, to enter by `with`.

    Everything but its nodes is as a cluster file says (default: $TRAINYARD_CLUSTER, else local): the image, the
    registry, where it is. `file`, `backend` and `set` are as for Cluster.from_file.
    """
    shape = {"name": name or f"ray-{secrets.token_hex(4)}", **config.keys()}
    return Cluster.from_file(
        file,
        set=[*as_overrides(shape), *as_overrides(set)],
        backend=backend,
        teardown=teardown,
        forward_logs=forward_logs,
        timeout=activation_timeout_seconds,
        guards_ray=True,
    )
