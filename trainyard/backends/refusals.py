"""What some backends have nothing for: things to purge, images to verify."""

from __future__ import annotations

from trainyard.errors import RequestError
from trainyard.spec.cluster import ClusterSpec


def nothing_to_purge(backend: str, why: str) -> RequestError:
    """Return the error for a backend that leaves nothing behind."""
    return RequestError(f"backend '{backend}' has nothing to purge: {why}", hint="Leave out --purge.")


def no_images(spec: ClusterSpec) -> RequestError:
    """Return the error for a cluster whose nodes are not containers of ours."""
    return RequestError(
        f"cluster {spec.name} ({spec.backend}) runs no images: there is nothing to verify",
        hint="Its nodes are not containers of ours. Name a cluster whose backend is compose or kuberay: "
        "invoke image.verify --backend compose",
    )
