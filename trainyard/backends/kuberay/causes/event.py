"""What Kubernetes' events say about one object, and nothing about those before it of the same name; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainyard.backends.kuberay import pod

Event = Mapping[str, Any]
WARNING = "Warning"


def of(events: Iterable[Event], uid: str) -> tuple[Event, ...]:
    """Return the events of the object with this uid, the oldest first."""
    ours = (one for one in events if (one.get("involvedObject") or {}).get("uid") == uid)
    return tuple(sorted(ours, key=when))


def when(event: Event) -> float:
    """Return when it was last seen, in Unix seconds of the cluster; there are three places for that."""
    series = event.get("series") or {}
    times = (event.get("lastTimestamp"), series.get("lastObservedTime"), event.get("eventTime"))
    return max(pod.seconds(one) for one in times)


def reason(event: Event) -> str:
    """Return its reason, such as FailedMount."""
    return str(event.get("reason") or "")


def message(event: Event) -> str:
    """Return what it says."""
    return str(event.get("message") or "")


def is_of_kubelet(event: Event) -> bool:
    """Say whether a kubelet has written it."""
    return "kubelet" in ((event.get("source") or {}).get("component"), event.get("reportingComponent"))


def newest(events: Sequence[Event], *reasons: str) -> Event | None:
    """Return the newest of some reasons, None if there is none."""
    found = [one for one in events if reason(one) in reasons]
    return found[-1] if found else None


def stands(events: Sequence[Event], problem: Event, *, until: Iterable[str]) -> bool:
    """Say whether nothing that ends a problem (`until`) was seen since."""
    ends = frozenset(until)
    return not any(reason(one) in ends and when(one) >= when(problem) for one in events)
