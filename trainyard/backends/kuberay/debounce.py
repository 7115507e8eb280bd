"""Faults count only if they last: Kubernetes repairs most faults itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from trainyard.diagnosis import Diagnosis, merged

# Kubelet, scheduler and operator retry within seconds, so a cause that lasts longer is permanent.
SOON = 5.0
# A restarting API server is unreachable for half a minute, and calls hosts lost for another 40 s
# (Kubernetes 1.34). A minute is also enough to install an operator, to start DNS, and to give a
# busy kubelet a Secret.
MINUTE = 60.0
# The longest time without a change, except for a pull: Ray gives its dashboard 150 s
# (shared/ray_nodes.py).
STILL = 300.0
# Isaac Sim's image is 20 GB: an hour at 50 Mbit/s.
PULL = 2 * 3600.0


class Debounce:
    """Measures how long each cause lasts without interruption."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._since: dict[tuple[str, tuple[str, ...]], float] = {}

    def expired(self, causes: Sequence[Diagnosis]) -> Diagnosis | None:
        """Record the causes; return the first that outlasted its tolerance.

        Returns None without such a cause. The result names all nodes with the
        same message.
        """
        now = self._now()
        # A lasting cause keeps its key; its message may change.
        self._since = {_key(cause): self._since.get(_key(cause), now) for cause in causes}
        for cause in causes:
            if self._has_lasted(cause, now):
                return next(found for found in merged(causes) if found.message == cause.message)
        return None

    def others(self, first: Diagnosis, causes: Sequence[Diagnosis]) -> list[Diagnosis]:
        now = self._now()
        lasting = [cause for cause in causes if self._has_lasted(cause, now)]
        return [cause for cause in merged(lasting) if cause.message != first.message]

    def _has_lasted(self, cause: Diagnosis, now: float) -> bool:
        return now - self._since[_key(cause)] >= cause.tolerates


def _key(cause: Diagnosis) -> tuple[str, tuple[str, ...]]:
    return cause.key or cause.message, cause.nodes
