"""`ray` in a block: it means no cluster, and says so.

Otherwise the first `.remote()` of a program starts a Ray of its own on this machine, and trains there.
"""

from __future__ import annotations

import os

from trainyard.backends.contract import ClusterStatus

_ADDRESS = "RAY_ADDRESS"


class Refusal:
    """An address of Ray that no Ray has; `close` puts back what was there before.

    Ray fails at once, and names the address, which says what to do instead.
    """

    def __init__(self, now: ClusterStatus) -> None:
        self._before = os.environ.get(_ADDRESS)
        cluster = f"the {now.backend} cluster {now.name}"
        os.environ[_ADDRESS] = f"ray does not reach {cluster} from this program: use cluster.dispatch(job)"

    def close(self) -> None:
        """Let `ray` mean again what it meant before."""
        if self._before is None:
            os.environ.pop(_ADDRESS, None)
        else:
            os.environ[_ADDRESS] = self._before
