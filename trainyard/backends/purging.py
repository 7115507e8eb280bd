"""What `cluster.down --purge` removes besides the cluster: nothing, on most backends."""

from __future__ import annotations

from trainyard.errors import RequestError


def refusal(backend: str, why: str) -> RequestError:
    """Return the error for a backend that leaves nothing behind."""
    return RequestError(f"backend '{backend}' has nothing to purge: {why}", hint="Leave out --purge.")
