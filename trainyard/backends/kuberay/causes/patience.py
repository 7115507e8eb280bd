"""What is wrong for long enough: much of what Kubernetes says mends itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from trainyard.backends.kuberay.causes import cause
from trainyard.backends.kuberay.causes.facts import Cause

# A name that was asked for too early is remembered as unknown for 5 s, by CoreDNS and by a cache on the node each.
HOPE_SECONDS = 8.0
ONCE_MORE_SECONDS = 4.0
Key = tuple[str, tuple[str, ...]]


class Patience:
    """Remembers since when each cause is seen; one that went away begins anew."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._since: dict[Key, float] = {}
        # When it was hopeless for the first time; None: it was not.
        self._hopeless: dict[Key, float | None] = {}

    def over(self, causes: Sequence[Cause]) -> Cause | None:
        """Return the first cause that has lasted too long, for all nodes that have it; None if there is none."""
        now = self._now()
        self._since = {_key(one): self._since.get(_key(one), now) for one in causes}
        worn = next((one for one in causes if self._is_worn(one)), None) or self._lost(causes)
        if worn is None:
            return None
        return next(one for one in cause.merged(causes) if (one.what, one.kind) == (worn.what, worn.kind))

    def _is_worn(self, one: Cause) -> bool:
        return self._now() - self._since[_key(one)] >= one.patience

    def _lost(self, causes: Sequence[Cause]) -> Cause | None:
        """Return the first cause that is hopeless, and was so seconds ago; one cause is asked at a time."""
        now = self._now()
        self._hopeless = {key: at for key, at in self._hopeless.items() if key in self._since}
        for one in causes:
            key = _key(one)
            if one.is_hopeless is None or now - self._since[key] < HOPE_SECONDS:
                continue
            before = self._hopeless.get(key, now)
            if before is None or 0 < now - before < ONCE_MORE_SECONDS:
                continue
            is_hopeless = one.is_hopeless()
            self._hopeless[key] = before if is_hopeless else None
            return one if is_hopeless and before < now else None
        return None


def _key(one: Cause) -> Key:
    return one.about or one.what, one.who
