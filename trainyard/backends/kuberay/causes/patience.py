"""What is wrong for long enough: much of what Kubernetes says mends itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from trainyard.backends.kuberay.causes import cause
from trainyard.backends.kuberay.causes.facts import Cause


class Patience:
    """Remembers since when each cause is seen; one that went away begins anew."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._since: dict[tuple[str, tuple[str, ...]], float] = {}

    def over(self, causes: Sequence[Cause]) -> Cause | None:
        """Return the first cause that has lasted too long, for all nodes that have it; None if there is none."""
        now = self._now()
        self._since = {_key(one): self._since.get(_key(one), now) for one in causes}
        worn = next((one for one in causes if now - self._since[_key(one)] >= one.patience), None)
        if worn is None:
            return None
        return next(one for one in cause.merged(causes) if (one.what, one.kind) == (worn.what, worn.kind))


def _key(one: Cause) -> tuple[str, tuple[str, ...]]:
    return one.about or one.what, one.who
