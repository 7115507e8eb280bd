"""A RayCluster on Kubernetes, made by the KubeRay operator; its dashboard is behind a port-forward.

Another backend that makes a Kubernetes first calls these with a section of its own: its kubeconfig, context, namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trainyard.backends.contract import ClusterStatus, LogLine, Tools, Traits
from trainyard.backends.kuberay import down, location, up
from trainyard.backends.kuberay import status as statuses
from trainyard.backends.kuberay.dashboard import Dashboard
from trainyard.backends.kuberay.listing import discover
from trainyard.backends.kuberay.verify import verify as verify_hosts
from trainyard.endpoint import Endpoint
from trainyard.images.verified import Verified
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import KuberaySection
from trainyard.steps import Stage, Step

__all__ = ["connect", "discover", "documents", "down_steps", "logs", "status", "up_steps", "verify"]
# To verify an image needs the namespace that `cluster.up` makes.
TRAITS = Traits(names_change=True, pushed_image="cluster.up", leaves="namespace and KubeRay operator stay")
Section = KuberaySection | None


def up_steps(spec: ClusterSpec, tools: Tools, section: Section = None) -> Sequence[Step | Stage]:
    return up.up_steps(spec, tools, section or spec.kuberay)


def documents(spec: ClusterSpec, tools: Tools, section: Section = None) -> list[dict[str, Any]]:
    return up.documents(spec, tools, section or spec.kuberay)


def down_steps(spec: ClusterSpec, tools: Tools, section: Section = None, *, purge: bool) -> Sequence[Step | Stage]:
    return down.down_steps(spec, tools, section or spec.kuberay, purge=purge)


def status(spec: ClusterSpec, tools: Tools, section: Section = None) -> ClusterStatus:
    return statuses.status(spec, tools, _dashboard(spec, tools, section))


def connect(spec: ClusterSpec, tools: Tools, section: Section = None) -> Endpoint:
    return statuses.connect(spec, _dashboard(spec, tools, section))


def logs(spec: ClusterSpec, tools: Tools, section: Section = None, *, follow: bool) -> Iterator[LogLine]:
    return statuses.logs(_dashboard(spec, tools, section), follow=follow)


def verify(spec: ClusterSpec, tools: Tools, section: Section = None, *, report: Callable[[str], None]) -> Verified:
    return verify_hosts(spec, tools, section or spec.kuberay, report=report)


def _dashboard(spec: ClusterSpec, tools: Tools, section: Section) -> Dashboard:
    return Dashboard(location.find(spec, tools, section or spec.kuberay))
