"""The way to a cluster's dashboard: a port-forward to whichever pod is the head now, and what Ray says there."""

from __future__ import annotations

from collections.abc import Iterable

from trainyard.backends import ray_nodes
from trainyard.backends.kuberay import names, site, stale
from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes.facts import Object
from trainyard.backends.kuberay.site import Site
from trainyard.errors import OutsideError
from trainyard.seams.kube import forward
from trainyard.seams.kube.types import POD
from trainyard.seams.ray_api import RefusedError


def address(where: Site) -> str:
    """Return where the dashboard answers for us, as long as this process lives."""
    return f"http://{forward.LOOPBACK}:{_port(where)}"


def trouble(where: Site) -> str:
    """Say why the newest connection to the dashboard came to nothing; "" if it did not."""
    return forward.last_error(_port(where))


def head_pod(where: Site) -> str | None:
    """Return the name of the pod that is the head now, None if none runs."""
    labels = f"{names.of_ray_cluster(where.name)},{names.RAY_NODE_TYPE}=head"
    found = where.kube.list(POD, namespace=where.namespace, labels=labels)
    running = [one for one in found if not pods.is_leaving(one) and pods.phase(one) == "Running"]
    return pods.name(running[0]) if running else None


def answer(where: Site, token: str | None, found: Iterable[Object]) -> frozenset[str]:
    """Return the names of the nodes that Ray calls alive. Raises OutsideError when it does not answer."""
    return ray_nodes.alive(address(where), token, started=stale.all_started(found))


def alive(where: Site, token: str | None, found: Iterable[Object]) -> frozenset[str] | None:
    """Return the names of the nodes that Ray calls alive, None if it does not answer. Raises RefusedError."""
    try:
        return answer(where, token, found)
    except RefusedError:
        raise
    except OutsideError:
        return None


def place(where: Site) -> str:
    """Return what errors name a cluster's place by."""
    return site.place(where)


def tunnel(where: Site) -> str:
    """Return where the port-forward leads to, as a person would say it."""
    return f"Kubernetes ({place(where)})"


def _port(where: Site) -> int:
    return forward.forward(
        where.kube,
        namespace=where.namespace,
        find=lambda: head_pod(where),
        port=names.DASHBOARD_PORT,
        what=f"the head of cluster {where.name}",
    )
