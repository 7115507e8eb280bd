"""Workers whose head was replaced: Ray lets them wait a minute for it, and then they end."""

from __future__ import annotations

from collections.abc import Iterable

from trainyard.backends.kuberay import names
from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes.facts import Object


def lost_workers(found: Iterable[Object], alive: frozenset[str] | None) -> tuple[Object, ...]:
    """Return the pods of workers that are older than their head, and that Ray does not know; pure.

    `alive` are the names that Ray knows; None (it does not answer) makes nobody lost.
    """
    every = tuple(found)
    head = next((one for one in every if pods.is_head(one) and pods.is_ready(one)), None)
    if head is None or alive is None:
        return ()
    since = started(head)
    return tuple(
        one
        for one in every
        if not pods.is_head(one)
        and not pods.is_leaving(one)
        and 0 < started(one) < since
        and names.node_name(one) not in alive
    )


def started(pod: Object) -> float:
    """Return when a pod's Ray began to run, in Unix seconds of the cluster, 0 if it does not."""
    ray = pods.ray(pod)
    return pods.seconds(ray.running_since) if ray else 0.0


def all_started(found: Iterable[Object]) -> dict[str, float]:
    """Return when each node began to run, by its name."""
    return {names.node_name(one): started(one) for one in found if started(one)}
