"""A cluster's dashboard: a port-forward to the pod of the current head, and Ray's answers."""

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
    """The dashboard of the cluster at a location. Its port-forward begins when first needed."""

    location: Location

    def address(self) -> str:
        """Return the dashboard's address on this machine; it works while this process lives."""
        return f"http://{forward.LOOPBACK}:{self._port()}"

    def ray_client(self, port: int) -> str:
        """Return the address of Ray Client's server on this machine, while this process lives."""
        return f"ray://{forward.LOOPBACK}:{self._forwarded(port)}"

    def last_error(self) -> str:
        """Return why the newest connection failed; "" if it did not."""
        return forward.last_error(self._port())

    def alive(self, token: str | None, cluster_pods: Iterable[Object]) -> frozenset[str]:
        """Return the names of the nodes that Ray calls alive.

        Raises OutsideError when Ray does not answer. A node that joined before the current pod of
        its name began is a predecessor: Ray notices late that a node is gone.
        """
        started = {naming.node_name(pod): pods.ray_started(pod) for pod in cluster_pods}
        return ray_nodes.alive(self.address(), token, started=started)

    def _port(self) -> int:
        return self._forwarded(naming.DASHBOARD_PORT)

    def _forwarded(self, port: int) -> int:
        """Return the port here that leads to a port of the head."""
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
