"""A cluster's dashboard, behind a port-forward to the current head's pod."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trainyard.backends.kuberay import naming, pods
from trainyard.backends.kuberay.location import Location
from trainyard.backends.shared import ray_nodes
from trainyard.seams.kube import forward
from trainyard.seams.kube.types import POD, Object


@dataclass(frozen=True)
class Dashboard:
    """A cluster's dashboard. The first method call opens its port-forward."""

    location: Location

    def address(self) -> str:
        """Return the dashboard's local URL, valid while this process lives."""
        return f"http://{forward.LOOPBACK}:{self._port()}"

    def ray_client(self, port: int) -> str:
        """Return Ray Client's local address, valid while this process lives."""
        return f"ray://{forward.LOOPBACK}:{self._forwarded(port)}"

    def last_error(self) -> str:
        """Return the error of the port-forward's newest connection, or ""."""
        return forward.last_error(self._port())

    def alive(self, token: str | None, cluster_pods: Iterable[Object]) -> frozenset[str]:
        """Ask Ray for the names of its living nodes.

        Raises OutsideError without an answer. A node that is older than its pod
        is a dead predecessor, which Ray calls alive for a while.
        """
        started = {naming.node_name(pod): pods.ray_started(pod) for pod in cluster_pods}
        return ray_nodes.alive(self.address(), token, started=started)

    def _port(self) -> int:
        return self._forwarded(naming.DASHBOARD_PORT)

    def _forwarded(self, port: int) -> int:
        where = self.location
        return forward.forward(
            where.kube,
            namespace=where.namespace,
            find=self._head_pod,
            port=port,
            what=f"the head of cluster {where.name}",
        )

    def _head_pod(self) -> str | None:
        labels = f"{naming.of_ray_cluster(self.location.name)},{naming.RAY_NODE_TYPE}=head"
        for pod in self.location.kube.list(POD, namespace=self.location.namespace, labels=labels):
            if pods.is_running(pod):
                return pods.name(pod)
        return None
