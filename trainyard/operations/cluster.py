"""A cluster that a file describes, and what made it: all that the other use cases know of one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainyard import backends
from trainyard.backends.contract import Backend, Site
from trainyard.backends.shared.record import recorded_backend
from trainyard.endpoint import Endpoint
from trainyard.spec.cluster import ClusterSpec, LoadedCluster


@dataclass(frozen=True)
class Cluster:
    """A cluster that a file describes, made or not.

    `backend_flag` is the value of `--backend`, None if the file's own backend is meant.
    """

    loaded: LoadedCluster
    site: Site
    backend_flag: str | None = None

    @property
    def spec(self) -> ClusterSpec:
        return self.loaded.spec

    @property
    def backend(self) -> Backend:
        return backends.named(self.spec.backend)


def as_made(cluster: Cluster) -> tuple[Backend, Site]:
    """Return the backend that made the cluster, and its site; the file may name another by now."""
    name = recorded_backend(cluster.site.state) or cluster.spec.backend
    return backends.named(name), replace(cluster.site, backend=name)


def connect_as_made(cluster: Cluster) -> Endpoint:
    """Return the way into what there is, whatever the file says. Raises NotReadyError."""
    backend, site = as_made(cluster)
    return backend.connect(cluster.spec, site)
