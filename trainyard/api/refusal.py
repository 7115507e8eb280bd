"""`ray` in a block: it means no cluster, and says so.

Otherwise the first `.remote()` of a program starts a Ray of its own on this machine, and trains there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from trainyard.spec.cluster import ClusterSpec

_ADDRESS = "RAY_ADDRESS"


@contextmanager
def refused(spec: ClusterSpec) -> Iterator[None]:
    """Give Ray an address that no Ray has: it fails at once, and names the address, which says what to do instead."""
    before = os.environ.get(_ADDRESS)
    cluster = f"the {spec.backend} cluster {spec.name}"
    os.environ[_ADDRESS] = f"ray does not reach {cluster} from this program: use cluster.dispatch(job)"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_ADDRESS, None)
        else:
            os.environ[_ADDRESS] = before
