"""A RayCluster on Kubernetes, made by the KubeRay operator; its dashboard is behind a port-forward."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.backends.contract import ClusterStatus, LogLine, Tools, Traits
from trainyard.backends.kuberay import location
from trainyard.backends.kuberay import status as statuses
from trainyard.backends.kuberay.dashboard import Dashboard
from trainyard.backends.kuberay.errands.verify import verify
from trainyard.backends.kuberay.listing import discover
from trainyard.backends.kuberay.removing.down import down_steps
from trainyard.backends.kuberay.up import documents, up_steps
from trainyard.endpoint import Endpoint
from trainyard.spec.cluster import ClusterSpec

__all__ = ["connect", "discover", "documents", "down_steps", "logs", "status", "up_steps", "verify"]

# To verify an image needs the namespace that `cluster.up` makes.
TRAITS = Traits(names_change=True, pushed_image="cluster.up", leaves="namespace and KubeRay operator stay")


def status(spec: ClusterSpec, tools: Tools) -> ClusterStatus:
    return statuses.status(spec, tools, _dashboard(spec, tools))


def connect(spec: ClusterSpec, tools: Tools) -> Endpoint:
    return statuses.connect(spec, _dashboard(spec, tools))


def logs(spec: ClusterSpec, tools: Tools, *, follow: bool) -> Iterator[LogLine]:
    return statuses.logs(_dashboard(spec, tools), follow=follow)


def _dashboard(spec: ClusterSpec, tools: Tools) -> Dashboard:
    return Dashboard(location.find(spec, tools, spec.kuberay))
