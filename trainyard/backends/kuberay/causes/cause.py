"""The one real cause why what should run does not; pure.

Kubernetes knows it, and says it in a dozen places: here they are asked in the order in which one causes the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainyard.backends import wording
from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes import (
    cause_cluster,
    cause_container,
    cause_host,
    cause_lost,
    cause_refused,
    cause_room,
    cause_wait,
    event,
)
from trainyard.backends.kuberay.causes.facts import Cause, Facts, Object
from trainyard.backends.kuberay.pod import Pod
from trainyard.errors import TrainyardError

SAID_LENGTH = 600


def of_cluster(facts: Facts) -> tuple[Cause, ...]:
    """Return why a Ray cluster is not ready, the first cause first: the head's come before its workers', which wait."""
    return (*cause_cluster.causes(facts), *_of_pods(facts))


def of_deployment(facts: Facts) -> tuple[Cause, ...]:
    """Return why a Deployment (`facts.owner`) has no pod that is ready, the first cause first."""
    return (*_of_deployment(facts.owner), *_of_pods(facts))


def of_pod(pod: Pod, facts: Facts) -> Cause | None:
    """Return why a pod is not ready, None if nothing is wrong with it (yet)."""
    if pods.is_ready(pod):
        return None
    events = event.of(facts.events, pods.uid(pod))
    found = cause_lost.cause(pod, facts.nodes(), events)
    if pods.is_leaving(pod):
        # It goes as any other, unless nobody is there who could end it.
        found = None if found and found.about in cause_lost.UNSURE else found
    elif found is None:
        found = _own(pod, facts, events)
    if found is None:
        return None
    return replace(found, who=(facts.name(pod),), hosts=(pods.host(pod),) if pods.host(pod) else ())


def merged(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """Return the causes with those nodes together that have the same."""
    found: dict[tuple[str, str], Cause] = {}
    for one in causes:
        key = one.what, one.kind.__name__
        first = found.get(key)
        who = (*first.who, *one.who) if first else one.who
        hosts = tuple(dict.fromkeys((*first.hosts, *one.hosts))) if first else one.hosts
        found[key] = replace(first or one, who=who, hosts=hosts)
    return tuple(found.values())


def error(cause: Cause, place: str) -> TrainyardError:
    """Return the error for a cause; `place` is the namespace and cluster that it is about."""
    what = sentence(cause)
    said = cause.words()
    if said:
        what += f"\n{said}"
    hosts = f", on {wording.named(cause.hosts)}" if cause.hosts else ""
    kept = " ".join(cause.said.split())
    shown = kept if len(kept) <= SAID_LENGTH else f"{kept[:SAID_LENGTH]}..."
    return cause.kind(what, where=f"{place}{hosts}" + (f": {shown}" if shown else ""), hint=cause.hint)


def sentence(cause: Cause) -> str:
    """Return a cause in one sentence."""
    return f"{wording.named(cause.who)} {cause.what}" if cause.who else cause.what


def _of_pods(facts: Facts) -> Sequence[Cause]:
    judged = [one for one in facts.pods if pods.uid(one) not in facts.spare]
    ordered = sorted(judged, key=lambda one: not pods.is_head(one))
    found = [found for found in (of_pod(one, facts) for one in ordered) if found]
    return cause_lost.patient(found)


def _own(pod: Pod, facts: Facts, events: Sequence[event.Event]) -> Cause | None:
    """Return what a pod itself says."""
    return (
        cause_room.cause(pod, wait=facts.wait_for_machines)
        or cause_host.gave_up(pod)
        or _of_containers(pod, facts, events)
        or cause_host.unprepared(pod, events)
        or cause_wait.cause(pod, facts)
    )


def _of_containers(pod: Pod, facts: Facts, events: Sequence[event.Event]) -> Cause | None:
    for one in pods.containers(pod):
        if _was_of_former_head(pod, one, facts):
            continue
        found = cause_container.cause(pod, one, facts, events)
        if found:
            return found
    return None


def _was_of_former_head(pod: Pod, container: pods.Container, facts: Facts) -> bool:
    """Say whether a container that ended had been started for the head before this one: it had to end."""
    head = pods.ray(facts.head) if facts.head is not None and not pods.is_head(pod) else None
    if head is None or head.running_since is None or container.failed is None:
        return False
    return pods.seconds(container.failed.started) < pods.seconds(head.running_since)


def _of_deployment(deployment: Object | None) -> Iterator[Cause]:
    refused: Mapping[str, Any] = pods.condition(deployment, "ReplicaFailure") if deployment else {}
    if refused.get("status") == "True":
        yield cause_refused.cause(
            str(refused.get("message") or ""), what="its pod", patience=cause_cluster.REFUSED_SECONDS
        )
