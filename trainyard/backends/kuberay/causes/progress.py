"""What a cluster that comes up waits for, in a few words; pure."""

from __future__ import annotations

from collections.abc import Iterable

from trainyard.backends import wording
from trainyard.backends.kuberay import counts, names
from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes import cause, cause_wait, event
from trainyard.backends.kuberay.causes.facts import Facts, Object
from trainyard.backends.kuberay.pod import Pod

# What nodes do: of one, of several.
_PHRASES = {
    "leaves": ("is being removed", "are being removed"),
    "unplaced": ("waits for a Kubernetes node", "wait for a Kubernetes node"),
    "pulls": ("pulls the image", "pull the image"),
    "made": ("is being made", "are being made"),
    "waits": ("waits for the head", "wait for the head"),
    "again": ("ended and is started again", "ended and are started again"),
    "starts": ("starts Ray", "start Ray"),
}


def text(facts: Facts) -> str:
    """Return what is waited for, "" if nothing: `gpu-x7k2p pulls the image; cpu-k2x9v waits for the head`."""
    return "; ".join([*_unmade(facts), *_doing(facts)])


def pulls(facts: Facts) -> bool:
    """Say whether an image is on its way to a pod that is waited for."""
    return any(doing(one, facts) == "pulls" for one in facts.pods if pods.uid(one) not in facts.spare)


def doing(pod: Pod, facts: Facts) -> str:
    """Return what a pod does that is not ready, as one of several words of ours; "" if it is ready."""
    if pods.is_leaving(pod):
        return "leaves"
    if pods.is_ready(pod):
        return ""
    if not pods.host(pod):
        return "unplaced"
    containers = pods.containers(pod)
    if any(one.name == names.WAIT_CONTAINER and one.running_since for one in containers):
        return "waits"
    if any(one.failed and not one.ready for one in containers):
        return "again"
    if any(one.running_since and not one.is_init for one in containers):
        return "starts"
    # What comes before it has ended: the kubelet is about to start Ray.
    if any(one.ended for one in containers if one.is_init):
        return "starts"
    return "pulls" if _pulls(pod, facts) else "made"


def phrase(word: str, *, several: bool = False) -> str:
    """Return one of those words as a person would say it."""
    return _PHRASES[word][several] if word else ""


def _doing(facts: Facts) -> Iterable[str]:
    found: dict[str, list[str]] = {}
    problems = []
    for one in facts.pods:
        if pods.uid(one) in facts.spare:
            continue
        wrong = cause.of_pod(one, facts)
        # Every worker waits for its head for a while.
        if wrong and wrong.about != cause_wait.ABOUT:
            problems.append(wrong)
        elif word := doing(one, facts):
            found.setdefault(word, []).append(facts.name(one))
    yield from (cause.sentence(one).rstrip(":") for one in cause.merged(problems))
    yield from (f"{wording.named(who)} {phrase(word, several=len(who) > 1)}" for word, who in found.items())


def _unmade(facts: Facts) -> Iterable[str]:
    """Return which pods the operator has still to make."""
    if facts.owner is None:
        return
    wanted = counts.minimum(facts.owner)
    missing = {group: count - there for group, count in wanted.items() if count > (there := _count(facts.pods, group))}
    if missing:
        shown = [counts.nodes(group, count) for group, count in missing.items()]
        yield f"KubeRay makes {wording.named(shown)}"
    elif not counts.is_observed(facts.owner):
        yield "KubeRay looks at the change"


def _count(found: Iterable[Object], group: str) -> int:
    return sum(pods.group(one) == group for one in found)


def _pulls(pod: Pod, facts: Facts) -> bool:
    newest = event.newest(event.of(facts.events, pods.uid(pod)), "Pulling", "Pulled", "Created")
    return newest is not None and event.reason(newest) == "Pulling"
