"""A RayCluster on Kubernetes, made by the KubeRay operator; its dashboard is behind a port-forward."""

from __future__ import annotations

from trainyard.backends.contract import Traits
from trainyard.backends.kuberay.asking import connect, logs, status
from trainyard.backends.kuberay.errands.verify import verify
from trainyard.backends.kuberay.listing import discover
from trainyard.backends.kuberay.removing.down import down_steps
from trainyard.backends.kuberay.up import documents, up_steps

__all__ = ["connect", "discover", "documents", "down_steps", "logs", "status", "up_steps", "verify"]

# To verify an image needs the namespace that `cluster.up` makes.
TRAITS = Traits(names_change=True, pushed_image="cluster.up", leaves="namespace and KubeRay operator stay")
