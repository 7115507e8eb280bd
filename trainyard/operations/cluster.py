"""A cluster that a file describes, and the backend that made it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainyard import backends
from trainyard.backends.contract import Backend, Site
from trainyard.backends.shared.record import recorded_backend
from trainyard.endpoint import Endpoint
from trainyard.spec.cluster import ClusterSpec, LoadedCluster


@dataclass(frozen=True)
class Cluster:
    """A cluster that a file describes, whether it exists or not.

    `backend_flag` is the value of `--backend`, None to use the file's backend.
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
    """Return the recorded backend, else that of the file, and its site."""
    name = recorded_backend(cluster.site.state) or cluster.spec.backend
    return backends.named(name), replace(cluster.site, backend=name)


def connect_as_made(cluster: Cluster) -> Endpoint:
    """Connect by the recorded backend.

    Raises NotReadyError if the cluster does not run.
    """
    backend, site = as_made(cluster)
    return backend.connect(cluster.spec, site)
