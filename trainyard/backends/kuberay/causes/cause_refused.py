"""Why the API server lets nobody make a pod: quotas, limits, security rules, things that are missing; pure.

The texts are those of kubernetes/plugin/pkg/admission; KubeRay has them in its condition ReplicaFailure, and in events.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from trainyard.backends.kuberay.causes.facts import Cause
from trainyard.errors import OutsideError, PrerequisiteError

_BEGINNING = re.compile(r'^.*?pods? "[^"]*" is forbidden: |^.*?error creating: ', re.DOTALL)
_Words = tuple[str, str | None]


def cause(said: str, *, what: str = "a pod", patience: float = 0.0) -> Cause:
    """Return why a pod cannot be made, given what KubeRay or Kubernetes said about it."""
    plain = " ".join(_BEGINNING.sub("", said).split())
    for pattern, words in _RULES:
        found = re.search(pattern, plain)
        if found:
            why, hint = words(found)
            # What our words have already is not said twice.
            whole = "" if found[found.lastindex or 0] in why else " ".join(said.split())
            return Cause(
                what=f"{what} may not be made: {why}",
                brief=why,
                kind=PrerequisiteError,
                hint=hint,
                said=whole,
                patience=patience,
            )
    return Cause(what=f"{what} could not be made: {plain}", brief=plain, kind=OutsideError, patience=patience)


def _quota(found: re.Match[str]) -> _Words:
    short = _short(found["asked"], found["used"], found["limited"])
    return (
        f"the namespace's quota {found['name']} has no room for it: {short}",
        "Ask for less in the cluster file, or have the quota raised: kubectl describe quota",
    )


def _short(asked: str, used: str, limited: str) -> str:
    """Return `requests.cpu: 2 wanted, 3 of 4 used`, for each resource that the message names."""
    tables = [dict(one.split("=", 1) for one in text.split(",") if "=" in one) for text in (asked, used, limited)]
    return "; ".join(
        f"{name}: {amount} wanted, {tables[1].get(name, '?')} of {tables[2].get(name, '?')} used"
        for name, amount in tables[0].items()
    )


def _unquoted(found: re.Match[str]) -> _Words:
    return (
        f"the namespace's quota {found['name']} wants every pod to say {found['must']}",
        "A LimitRange with defaults does that, or `kuberay.requests` in the cluster file.",
    )


def _limit(found: re.Match[str]) -> _Words:
    return (
        f"a LimitRange of the namespace stands against it: {found[0]}",
        "Ask for what it allows (kubectl describe limitrange), or have it changed.",
    )


def _security(found: re.Match[str]) -> _Words:
    return (
        f"the namespace's Pod Security Standard {found['level']} stands against it: {found['rules']}",
        "`kuberay: {security: {restricted: true, run_as_user: 1000}}` keeps to it, if the image can run without root.",
    )


def _account(found: re.Match[str]) -> _Words:
    return (
        f"there is no service account {found[1]}",
        "Make it, or correct `kuberay.service_account` in the cluster file.",
    )


def _priority(found: re.Match[str]) -> _Words:
    return (
        f"there is no priority class {found[1]}",
        "Make it, or correct `kuberay.priority_class` in the cluster file: kubectl get priorityclasses",
    )


def _runtime(found: re.Match[str]) -> _Words:
    return (
        f"there is no runtime class {found[1]}",
        "Make it, or correct `kuberay.runtime_class` in the cluster file: kubectl get runtimeclasses",
    )


def _webhook(found: re.Match[str]) -> _Words:
    return (
        f"the rule {found['name']} of this Kubernetes says: {found['said']}",
        "Whoever runs it knows how to keep to it.",
    )


def _away(found: re.Match[str]) -> _Words:
    return (
        f"Kubernetes must ask {found[1]} about every pod, and that does not answer",
        "Whoever runs it has to start it again, or to remove its webhook.",
    )


def _going(_: re.Match[str]) -> _Words:
    return "its namespace is being removed", "Wait until it is gone (kubectl get namespace), then repeat the command."


def _rights(found: re.Match[str]) -> _Words:
    return (
        f"the operator may not {found['verb']} {found['kind']}",
        "Its role lacks that: repair it with Helm (helm upgrade), or ask whoever installed it.",
    )


# The first that matches counts.
_RULES: tuple[tuple[str, Callable[[re.Match[str]], _Words]], ...] = (
    (
        r"exceeded quota: (?P<name>\S+), requested: (?P<asked>\S+), used: (?P<used>\S+), limited: (?P<limited>\S+)",
        _quota,
    ),
    (r"failed quota: (?P<name>\S+): must specify (?P<must>[^;]+)", _unquoted),
    (r"(?:maximum|minimum|max|min) \S+ (?:usage|limit|request)[^,]*(?:, but .*?)?(?=\]|$)", _limit),
    (r"violates PodSecurity \"(?P<level>[^:\"]+)[^\"]*\": (?P<rules>.*)", _security),
    (r"error looking up service account \S+: serviceaccount \"([^\"]+)\" not found", _account),
    (r"no PriorityClass with name (\S+) was found", _priority),
    (r"RuntimeClass \"([^\"]+)\" not found", _runtime),
    (r"failed calling webhook \"([^\"]+)\"", _away),
    (r"admission webhook \"(?P<name>[^\"]+)\" denied the request: (?P<said>.*)", _webhook),
    (r"because it is being terminated", _going),
    (r"cannot (?P<verb>\w+) resource \"(?P<kind>[^\"]+)\"", _rights),
)
