"""Sematic's Ray cluster classes: a program only has to change its imports.

A fraction of a CPU is rounded up for Ray, but Kubernetes gets the exact
request. Inside `with RayCluster(...)`, `ray` is connected to that cluster; no
local Ray is started.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from trainyard import paths, versions
from trainyard.api.cluster import Cluster, Teardown
from trainyard.api.job import Overrides, as_overrides
from trainyard.console.report import note
from trainyard.errors import RequestError
from trainyard.operations import clusters
from trainyard.operations.cluster import Cluster as FoundCluster
from trainyard.wording import counted


@dataclass(frozen=True)
class RayNodeConfig:
    """The resources of one node; `memory_gb` is in gibibytes."""

    cpu: float
    memory_gb: float
    gpu_count: int = 0

    def keys(self) -> dict[str, Any]:
        """Return a node's keys in a cluster file."""
        return {
            "cpus": math.ceil(self.cpu),
            "memory": _memory(self.memory_gb),
            "gpus": self.gpu_count,
        }

    def within(self, gpus: int, nodes: int) -> RayNodeConfig:
        """Limit the GPUs to this node's share of `gpus` among `nodes` nodes."""
        return replace(self, gpu_count=min(self.gpu_count, gpus // max(1, nodes)))


@dataclass(frozen=True)
class ScalingGroup:
    """From `min_workers` to `max_workers` nodes of one shape."""

    worker_nodes: RayNodeConfig
    min_workers: int = 1
    max_workers: int = 1

    def keys(self, index: int) -> dict[str, Any]:
        """Return a worker group's keys in a cluster file."""
        is_fixed = self.max_workers == self.min_workers
        if is_fixed:
            size = {"count": self.min_workers}
        else:
            size = {"min": self.min_workers, "max": self.max_workers}
        return {"name": _group_name(index), **size, **self.worker_nodes.keys()}


@dataclass(frozen=True)
class AutoscalerConfig:
    """CPUs and memory (GiB) of the autoscaler's container in the head's pod."""

    cpu: float
    memory_gb: float


@dataclass(frozen=True)
class RayClusterConfig:
    """A head and groups of workers; `ray_version` must be Trainyard's."""

    head_node: RayNodeConfig
    scaling_groups: Sequence[ScalingGroup] = ()
    ray_version: str = versions.RAY
    autoscaler_config: AutoscalerConfig | None = None

    def __post_init__(self) -> None:
        if self.ray_version != versions.RAY:
            what = f"ray_version is {self.ray_version}, and nodes have Ray {versions.RAY}"
            raise RequestError(
                what, where="RayClusterConfig", hint=f"Leave it out, or write {versions.RAY!r}."
            )

    def within(self, gpus: int) -> RayClusterConfig:
        """Limit the cluster to `gpus` GPUs; the head gets its GPUs first."""
        head = self.head_node.within(gpus, 1)
        left = gpus - head.gpu_count
        groups = []
        for group in self.scaling_groups:
            nodes = group.worker_nodes.within(left, group.max_workers)
            left -= nodes.gpu_count * group.max_workers
            groups.append(replace(group, worker_nodes=nodes))
        return replace(self, head_node=head, scaling_groups=tuple(groups))

    def fixed(self) -> RayClusterConfig:
        """Return this cluster with only `min_workers` nodes in each group."""
        groups = [replace(group, max_workers=group.min_workers) for group in self.scaling_groups]
        return replace(self, scaling_groups=tuple(groups))

    @property
    def grows(self) -> bool:
        return any(group.max_workers > group.min_workers for group in self.scaling_groups)

    def gpus(self) -> int:
        """Count the GPUs with `max_workers` nodes in each group."""
        groups = (group.worker_nodes.gpu_count * group.max_workers for group in self.scaling_groups)
        return self.head_node.gpu_count + sum(groups)

    def kubernetes(self) -> dict[str, Any]:
        """Return Kubernetes' own settings, by their paths in a cluster file.

        >>> node = RayNodeConfig(cpu=1.5, memory_gb=2.5)
        >>> SimpleRayCluster(1, node).kubernetes()
        {'kuberay.groups.head.requests.cpus': 1.5}
        """
        nodes = {"head": self.head_node}
        for index, group in enumerate(self.scaling_groups):
            if group.max_workers:
                nodes[_group_name(index)] = group.worker_nodes
        settings: dict[str, Any] = {}
        for name, node in nodes.items():
            if node.cpu != math.ceil(node.cpu):
                settings[f"kuberay.groups.{name}.requests.cpus"] = node.cpu
        if self.autoscaler_config is not None:
            settings["kuberay.autoscaler.cpus"] = self.autoscaler_config.cpu
            settings["kuberay.autoscaler.memory"] = _memory(self.autoscaler_config.memory_gb)
        return settings

    def keys(self) -> dict[str, Any]:
        """Return the `head` and `workers` sections of a cluster file.

        >>> node = RayNodeConfig(cpu=1.5, memory_gb=2.5)
        >>> group = SimpleRayCluster(3, node).keys()["workers"][0]
        >>> group["count"], group["cpus"], group["memory"]
        (2, 2, '2560MiB')
        """
        workers = []
        for index, group in enumerate(self.scaling_groups):
            if group.max_workers:
                workers.append(group.keys(index))
        return {"head": self.head_node.keys(), "workers": workers}


def _group_name(index: int) -> str:
    return f"worker-group-{index}"


def _memory(gibibytes: float) -> str:
    return f"{round(gibibytes * 1024)}MiB"


def SimpleRayCluster(
    n_nodes: int,
    node_config: RayNodeConfig,
    max_nodes: int | None = None,
    ray_version: str | None = None,
    autoscaler_config: AutoscalerConfig | None = None,
) -> RayClusterConfig:
    """Return a cluster of `n_nodes` equal nodes.

    Both numbers of nodes include the head. With `max_nodes`, the cluster may
    grow to that size. Raises RequestError for fewer than one node, a
    `max_nodes` below `n_nodes`, and a `ray_version` other than Trainyard's.
    """
    most = n_nodes if max_nodes is None else max_nodes
    if n_nodes < 1 or most < n_nodes:
        what = f"n_nodes={n_nodes}, max_nodes={max_nodes}: n_nodes must be from 1 to max_nodes"
        raise RequestError(what, where="SimpleRayCluster")
    group = ScalingGroup(node_config, min_workers=n_nodes - 1, max_workers=most - 1)
    return RayClusterConfig(node_config, (group,), ray_version or versions.RAY, autoscaler_config)


class RayCluster(Cluster):
    """A context manager that makes a cluster of this shape.

    The default name is random. All settings except the nodes (image, registry,
    location) come from a cluster file: by default $TRAINYARD_CLUSTER, else
    local. `file`, `backend` and `set` are as for Cluster.from_file.
    `runtime_env` is Ray's, for the tasks that the `with` block starts:
    {"working_dir": "."} uploads the modules of the current directory.
    """

    def __init__(  # noqa: PLR0913 (Sematic's arguments, and those of Cluster.from_file)
        self,
        config: RayClusterConfig,
        forward_logs: bool | None = None,
        activation_timeout_seconds: float = 900.0,
        *,
        name: str | None = None,
        file: str | Path | None = None,
        backend: str | None = None,
        set: Overrides = (),
        teardown: Teardown = "made",
        runtime_env: Mapping[str, Any] | None = None,
    ) -> None:
        self.config = config
        self.activation_timeout_seconds = activation_timeout_seconds
        found = _Shape(
            name or f"ray-{secrets.token_hex(4)}",
            # The program describes the nodes, so the shipped sample can replace a cluster file.
            file=str(file or os.environ.get("TRAINYARD_CLUSTER") or paths.DEFAULT_CLUSTER),
            backend=backend,
            overrides=as_overrides(set),
            seconds=activation_timeout_seconds,
        )

        super().__init__(
            found.fitting(config),
            teardown=teardown,
            forward_logs=forward_logs,
            timeout=activation_timeout_seconds,
            ray_env=runtime_env or {},
        )


@dataclass(frozen=True)
class _Shape:
    """A cluster's settings except its nodes.

    Its machines may take `seconds` to start.
    """

    name: str
    file: str
    backend: str | None
    overrides: Sequence[str]
    seconds: float

    def fitting(self, config: RayClusterConfig) -> FoundCluster:
        """Return a cluster of `config`, reduced to what the backend supports.

        Prints a note for each reduction.
        """
        found = self._found(config)
        traits = found.backend.traits
        if config.grows and not traits.grows:
            note(
                f"note: a cluster on {found.spec.backend} does not grow: each group gets "
                "its min_workers"
            )
            config = config.fixed()

        asked = config.gpus()
        # `gpus_here` may run nvidia-smi, which takes seconds.
        most = None
        if asked:
            most = traits.gpus_here(found.spec, os.environ)

        if most is not None and asked > most:
            note(
                f"note: {counted(asked, 'GPU')} requested, but this machine, and so the cluster, "
                f"has {most or 'none'}"
            )
            config = config.within(most)

        if traits.waits and attrgetter(traits.waits)(found.spec) is None:
            return self._found(config, f"{traits.waits}={self.seconds:g}s")
        return self._found(config)

    def _found(self, config: RayClusterConfig, *more: str) -> FoundCluster:
        shape = {"name": self.name, **config.keys(), **config.kubernetes()}
        overrides = [*as_overrides(shape), *more, *self.overrides]
        return clusters.find(
            self.file,
            dict(os.environ),
            directory=Path.cwd(),
            overrides=overrides,
            backend=self.backend,
        )
