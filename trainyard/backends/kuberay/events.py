"""What Kubernetes' events say about one object, and nothing about those before it of the same name; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainyard.backends.kuberay import pods
from trainyard.backends.kuberay.pods import Object

WARNING = "Warning"


def of(events: Iterable[Object], uid: str) -> tuple[Object, ...]:
    """Return the events of the object with this uid, the oldest first."""
    ours = (event for event in events if (event.get("involvedObject") or {}).get("uid") == uid)
    return tuple(sorted(ours, key=when))


def when(event: Object) -> float:
    """Return when it was last seen, in Unix seconds of the cluster; there are three places for that."""
    series = event.get("series") or {}
    times = (event.get("lastTimestamp"), series.get("lastObservedTime"), event.get("eventTime"))
    return max(pods.seconds(time) for time in times)


def reason(event: Object) -> str:
    """Return its short word, such as FailedMount."""
    return str(event.get("reason") or "")


def message(event: Object) -> str:
    return str(event.get("message") or "")


def newest(events: Sequence[Object], *reasons: str) -> Object | None:
    """Return the newest with one of some reasons, None if there is none."""
    return next((event for event in reversed(events) if reason(event) in reasons), None)
