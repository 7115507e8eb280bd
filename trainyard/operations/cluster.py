"""A cluster that a file describes, and what made it: all that the other use cases know of one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainyard import backends
from trainyard.backends.contract import Backend, Tools
from trainyard.backends.shared.record import recorded_backend
from trainyard.endpoint import Endpoint
from trainyard.spec.cluster import ClusterSpec, LoadedCluster


@dataclass(frozen=True)
class Cluster:
    """A cluster that a file describes, made or not."""

    loaded: LoadedCluster
    tools: Tools

    @property
    def spec(self) -> ClusterSpec:
        return self.loaded.spec

    @property
    def backend(self) -> Backend:
        return backends.named(self.spec.backend)


def as_made(cluster: Cluster) -> tuple[Backend, Tools]:
    """Return the backend that made the cluster, which need not be the one its file names by now,
    and its tools.
    """
    name = recorded_backend(cluster.tools.state) or cluster.spec.backend
    return backends.named(name), replace(cluster.tools, backend=name)


def connect_as_made(cluster: Cluster) -> Endpoint:
    """Return the way into what there is, whatever the file says by now. Raises NotReadyError when
    there is none.
    """
    backend, tools = as_made(cluster)
    return backend.connect(cluster.spec, tools)
