"""A cluster's dashboard: a port-forward to the pod that is the head now, and what Ray says
there.
"""

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
    """The dashboard of the cluster at a location; its port-forward begins when it is first
    needed.
    """

    location: Location

    def address(self) -> str:
        """Return where it answers for us, as long as this process lives."""
        return f"http://{forward.LOOPBACK}:{self._port()}"

    def ray_client(self, port: int) -> str:
        """Return where the head's Ray Client server answers for us, as long as this process
        lives.
        """
        return f"ray://{forward.LOOPBACK}:{self._forwarded(port)}"

    def last_error(self) -> str:
        """Return why the newest connection came to nothing; "" if it did not."""
        return forward.last_error(self._port())

    def alive(self, token: str | None, own: Iterable[Object]) -> frozenset[str]:
        """Return the names of the nodes that Ray calls alive. Raises OutsideError when it does not
        answer.

        What joined before the pod of that name began was its predecessor: Ray notices late that a
        node is gone.
        """
        started = {naming.node_name(pod): pods.ray_started(pod) for pod in own}
        return ray_nodes.alive(self.address(), token, started=started)

    def _port(self) -> int:
        return self._forwarded(naming.DASHBOARD_PORT)

    def _forwarded(self, port: int) -> int:
        """Return the port here that ends at one of the head."""
        where = self.location
        what = f"the head of cluster {where.name}"
        return forward.forward(
            where.kube, namespace=where.namespace, find=self._head_pod, port=port, what=what
        )

    def _head_pod(self) -> str | None:
        labels = f"{naming.of_ray_cluster(self.location.name)},{naming.RAY_NODE_TYPE}=head"
        heads = self.location.kube.list(POD, namespace=self.location.namespace, labels=labels)
        running = (
            pods.name(pod)
            for pod in heads
            if not pods.is_leaving(pod) and pods.phase(pod) == "Running"
        )
        return next(running, None)
