"""The RayCluster: its drift from the file, its creation, its replacement.

KubeRay 1.5 changes a running cluster only in part
(ray-operator/controllers/ray/raycluster_controller.go, reconcilePods): it
resizes groups and makes new groups. A changed pod template affects only later
pods. Pods of a removed group stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from trainyard.backends.kuberay import location, naming, operator, ownership, pods, removal
from trainyard.backends.kuberay.desired import Desired
from trainyard.backends.kuberay.manifest import groups
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.seams.kube.errors import InvalidError
from trainyard.seams.kube.types import RAY_CLUSTER, Object
from trainyard.spec.units import format_size
from trainyard.steps import YES, Answer, Step, no
from trainyard.wording import named

# The cluster file's keys for options of `ray start`.
_OPTIONS = {"num-cpus": "cpus", "num-gpus": "gpus", "memory": "memory"}
_OF_GROUP = ("idle_timeout", *_OPTIONS.values())
_SIMULATED = "kuberay.simulated_gpus"
_AUTOSCALER = "the head's autoscaler, which is needed by groups that grow,"
# These words follow a node's size; if it changed, only the size is listed.
_FOLLOWS = re.compile(
    r"resources|object-store|volumes|NVIDIA_VISIBLE_DEVICES|runtimeClassName|tolerations"
)
_OF_SIZE = (*_OPTIONS.values(), _SIMULATED)
# The content of a RayCluster by (group, word). A word is the cluster file's key, if there is one.
Words = dict[tuple[str, str], Any]
# The API server's text for a field that is not in the CRD (structured-merge-diff).
_UNKNOWN_FIELD = "field not declared in schema"


@dataclass(frozen=True)
class Change:
    """One difference between the running RayCluster and the file.

    `applied`: KubeRay makes the change on a running cluster. `ends_nodes`: a
    group gets smaller.
    """

    text: str
    applied: bool = False
    ends_nodes: bool = False


def changes(live: Object, desired: Object) -> tuple[Change, ...]:
    """Compare the live RayCluster with the API server's dry run (`desired`).

    In a group that grows, the autoscaler sets the number of nodes, which is
    never a difference.
    """
    old = _described(live)
    new = _described(desired)
    found = []
    for group, word in _differing(old, new):
        found.append(_change(group, word, old.get((group, word)), new.get((group, word))))
    return tuple(dict.fromkeys(found))


def _differing(old: Words, new: Words) -> list[tuple[str, str]]:
    """Return the keys that differ, without those that others imply."""
    differing = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    moved = [group for group, word in differing if not word]
    has_size = any(word in _OF_SIZE for group, word in differing if group not in moved)
    found = []
    for group, word in differing:
        is_part = bool(word) and group in moved
        follows = has_size and _FOLLOWS.search(word)
        if not is_part and not follows:
            found.append((group, word))
    return found


class _Sizes(NamedTuple):
    least: int
    most: int

    def __str__(self) -> str:
        if self.least == self.most:
            return str(self.least)
        return f"{self.least} to {self.most}"


def _described(ray_cluster: Object) -> Words:
    """Return a RayCluster's content.

    The group "" has the keys of the whole cluster. The word "" means that the
    group exists.
    """
    spec = ray_cluster["spec"]
    words: Words = {
        ("", _SIMULATED): pods.annotations_of(ray_cluster).get(naming.SIMULATED),
        ("", "auth"): spec.get("authOptions"),
        ("", "Ray"): spec.get("rayVersion"),
        ("", _AUTOSCALER): (spec.get("enableInTreeAutoscaling"), spec.get("autoscalerOptions")),
    }
    described = {"head": spec["headGroupSpec"]}
    for name, group in groups(ray_cluster).items():
        described[f"workers.{name}"] = group

    for name, group in described.items():
        words[name, ""] = True
        for word, value in _described_group(group).items():
            words[name, word] = value
    return words


def _described_group(group: Object) -> dict[str, Any]:
    template = group["template"]
    container = template["spec"]["containers"][0]
    words: dict[str, Any] = {}
    for option, value in group["rayStartParams"].items():
        words[_OPTIONS.get(option, option)] = value

    sizes = _Sizes(group.get("minReplicas") or 0, group.get("maxReplicas") or 0)
    if sizes.least == sizes.most:
        count = group.get("replicas") or 0
        sizes = _Sizes(count, count)
    words["count"] = sizes
    words["idle_timeout"] = group.get("idleTimeoutSeconds")
    words["Ray's labels"] = group.get("labels")

    for key, value in {**template["spec"], **template["metadata"], **container}.items():
        if key not in ("containers", "env", "image"):
            words[f"the pods' {key}"] = value
    for variable in container.get("env") or ():
        words[f"env.{variable['name']}"] = variable
    words["image"] = container["image"]
    return words


def carried(desired: Object, live: Object | None) -> Object:
    """Return the desired RayCluster, with the autoscaler's live `replicas`.

    The API server replaces the whole list of groups: the CRD names no key.
    """
    if live is None or not groups(desired):
        return desired

    now = groups(live)
    sent = []
    for name, group in groups(desired).items():
        sent.append({**group, **_decided(group, now.get(name))})
    return {**desired, "spec": {**desired["spec"], "workerGroupSpecs": sent}}


def _decided(group: Object, live: Object | None) -> Object:
    if live is None or "replicas" in group:
        return {}
    now = max(live.get("replicas") or 0, group["minReplicas"])
    decided = {"replicas": min(now, group["maxReplicas"])}
    if live.get("scaleStrategy"):
        decided["scaleStrategy"] = live["scaleStrategy"]
    return decided


def _change(group: str, word: str, old: Any, new: Any) -> Change:
    if not word and old is None:
        return Change(f"{group} is new", applied=True)
    if not word:
        return Change(f"{group} is gone")
    if word == "count":
        text = f"{group}.count: {old} now, {new} desired"
        return Change(text, applied=True, ends_nodes=old.most > new.most)
    if word not in (*_OF_GROUP, _SIMULATED, "image"):
        return Change(f"{word} differs")
    name = word
    if word in _OF_GROUP:
        name = f"{group}.{word}"
    return Change(
        f"{name}: {_shown(word, old)} now, {_shown(word, new)} desired",
        applied=word == "idle_timeout",
    )


def _shown(word: str, value: Any) -> Any:
    if word == "memory" and value:
        return format_size(int(value))
    return value or 0


def differences(desired: Desired) -> tuple[Change, ...]:
    """Return the differences between the running RayCluster and the file.

    The API server's dry run adds its defaults, so that these are no
    differences.
    """
    if desired.running is None:
        return ()
    return changes(desired.running, _send(desired, desired.running, dry_run=True))


def document(desired: Desired) -> Object:
    live = desired.running
    if desired.site.wishes.recreate:
        live = None
    return carried(desired.documents.ray_cluster, live)


def refusal(desired: Desired, found: Sequence[Change]) -> RequestError | None:
    """Return the error if a change needs --recreate, which is not given."""
    ignored = [change.text for change in found if not change.applied]
    if not ignored or desired.site.wishes.recreate:
        return None
    return RequestError(
        "KubeRay cannot make all changes of the cluster file on a running cluster; replacing the "
        "cluster ends everything on it",
        where="; ".join(ignored),
        hint="If that is meant: trainyard cluster.up --recreate",
    )


def step(desired: Desired, found: Sequence[Change], *, after: str | None) -> Step:
    """Return the step that makes or changes the RayCluster."""

    def done() -> Answer:
        live = location.ray_cluster(desired.location)
        if live is None or pods.is_leaving(live):
            return no("there is none")
        # The title names the differences.
        if changes(live, _send(desired, live, dry_run=True)):
            return no("")
        return YES

    def apply() -> None:
        _send(desired, location.ray_cluster(desired.location), dry_run=False)

    title = f"Make the RayCluster {desired.spec.name}"
    if found and not desired.is_new:
        title = f"Change the RayCluster: {named([change.text for change in found])}"

    disruptive = any(change.ends_nodes for change in found)
    return Step("ray-cluster", title, done, apply, after=after, disruptive=disruptive)


def replace_step(desired: Desired) -> Step | None:
    """Return the step that removes a former RayCluster, if any.

    Such a RayCluster is to be replaced, is being removed, or is gone but still
    has pods.
    """
    live = desired.live
    where = desired.location
    if live is not None and not desired.is_new:
        return None
    uids = removal.uids(where, live, desired.pods)
    if not uids:
        return None

    title = "Remove the former cluster"
    if desired.never_started:
        title = "Remove the cluster that never started"
    disruptive = desired.site.wishes.recreate and not desired.never_started
    return removal.ray_cluster_step(where, "former-ray-cluster", title, uids, disruptive=disruptive)


def _owned(body: Object, live: Object | None) -> Object:
    """Add the live RayCluster's owner, so that an apply keeps it."""
    if live is None:
        return body
    annotations = {**body["metadata"]["annotations"], naming.OWNER: ownership.named_by(live)}
    return {**body, "metadata": {**body["metadata"], "annotations": annotations}}


def _send(desired: Desired, live: Object | None, *, dry_run: bool) -> Object:
    """Apply the desired RayCluster; return the API server's result."""
    where = desired.location
    body = _owned(carried(desired.documents.ray_cluster, live), live)
    try:
        return where.kube.apply(RAY_CLUSTER, body, namespace=where.namespace, dry_run=dry_run)
    except InvalidError as error:
        if _UNKNOWN_FIELD not in str(error):
            raise
        raise PrerequisiteError(
            "the CRD of RayClusters is older than the KubeRay operator: Helm does not upgrade CRDs",
            where=error.what,
            hint=f"Have its CRDs applied: {operator.how_to_apply(where.section.operator)}",
        ) from error
