"""Why the API server lets nobody make a pod: quotas, limits, security rules, things that are missing; pure.

The texts are those of kubernetes/plugin/pkg/admission; KubeRay has them in its condition ReplicaFailure, and in events.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from trainyard.backends.kuberay.debounce import SOON
from trainyard.diagnosis import Diagnosis, Rule, explain
from trainyard.errors import PrerequisiteError

_BEGINNING = re.compile(r'^.*?pods? "[^"]*" is forbidden: |^.*?error creating: ', re.DOTALL)


def _amounts(match: re.Match[str]) -> Mapping[str, str]:
    """Return `requests.cpu: 2 wanted, 3 of 4 used`, for each resource that the message names."""
    tables = [
        dict(pair.split("=", 1) for pair in match[part].split(",") if "=" in pair)
        for part in ("requested", "used", "limited")
    ]
    amounts = (
        f"{name}: {amount} wanted, {tables[1].get(name, '?')} of {tables[2].get(name, '?')} used"
        for name, amount in tables[0].items()
    )
    return {"amounts": "; ".join(amounts)}


def _rule(pattern: str, message: str, hint: str) -> Rule:
    return Rule(pattern, message, hint, error=PrerequisiteError)


RULES = (
    Rule(
        r"exceeded quota: (?P<name>\S+), requested: (?P<requested>\S+), used: (?P<used>\S+), limited: (?P<limited>\S+)",
        "the namespace's quota {name} has no room for it: {amounts}",
        "Ask for less in the cluster file, or have the quota raised: kubectl describe quota",
        error=PrerequisiteError,
        words=_amounts,
    ),
    _rule(
        r"failed quota: (?P<name>\S+): must specify (?P<must>[^;]+)",
        "the namespace's quota {name} wants every pod to say {must}",
        "A LimitRange with defaults does that, or `kuberay.requests` in the cluster file.",
    ),
    _rule(
        r"(?P<rule>(?:maximum|minimum|max|min) \S+ (?:usage|limit|request)[^,]*(?:, but .*?)?(?=\]|$))",
        "a LimitRange of the namespace stands against it: {rule}",
        "Ask for what it allows (kubectl describe limitrange), or have it changed.",
    ),
    _rule(
        r"violates PodSecurity \"(?P<level>[^:\"]+)[^\"]*\": (?P<rules>.*)",
        "the namespace's Pod Security Standard {level} stands against it: {rules}",
        "`kuberay: {security: {restricted: true, run_as_user: 1000}}` keeps to it, if the image can run without root.",
    ),
    _rule(
        r"error looking up service account \S+: serviceaccount \"(?P<name>[^\"]+)\" not found",
        "there is no service account {name}",
        "Make it, or correct `kuberay.service_account` in the cluster file.",
    ),
    _rule(
        r"no PriorityClass with name (?P<name>\S+) was found",
        "there is no priority class {name}",
        "Make it, or correct `kuberay.priority_class` in the cluster file: kubectl get priorityclasses",
    ),
    _rule(
        r"RuntimeClass \"(?P<name>[^\"]+)\" not found",
        "there is no runtime class {name}",
        "Make it, or correct `kuberay.runtime_class` in the cluster file: kubectl get runtimeclasses",
    ),
    _rule(
        r"failed calling webhook \"(?P<name>[^\"]+)\"",
        "Kubernetes must ask {name} about every pod, and that does not answer",
        "It has to be started again, or its webhook removed, by who runs this Kubernetes.",
    ),
    _rule(
        r"admission webhook \"(?P<name>[^\"]+)\" denied the request: (?P<reason>.*)",
        "the rule {name} of this Kubernetes says: {reason}",
        "Who runs this Kubernetes knows how to keep to it.",
    ),
    _rule(
        r"because it is being terminated",
        "its namespace is being removed",
        "Wait until it is gone (kubectl get namespace), then repeat the command.",
    ),
    _rule(
        r"cannot (?P<verb>\w+) resource \"(?P<kind>[^\"]+)\"",
        "the operator may not {verb} {kind}",
        "Its role lacks that: repair it with Helm (helm upgrade), or ask who installed it.",
    ),
)


def explain_admission(text: str, *, what: str = "a pod") -> Diagnosis:
    """Return why `what` cannot be made, given what KubeRay or Kubernetes said about it."""
    plain = " ".join(_BEGINNING.sub("", text).split())
    found = explain(plain, RULES)
    if found is None:
        return Diagnosis(f"{what} could not be made: {plain}", summary=plain, tolerates=SOON)
    return replace(found, message=f"{what} may not be made: {found.message}", tolerates=SOON)
