"""The RayCluster: its differences from the file, its predecessor's end, and its step.

Judged by KubeRay 1.5 (ray-operator/controllers/ray/raycluster_controller.go, reconcilePods): on a
running cluster it carries out sizes of groups and new groups. The template of a pod counts only
for pods that are made later, and pods of a group that is gone stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.backends.kuberay import location, naming, operator, ownership, pods, removal
from trainyard.backends.kuberay.desired import Desired
from trainyard.backends.kuberay.manifest import groups
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.seams.kube.errors import InvalidError
from trainyard.seams.kube.types import RAY_CLUSTER, Object
from trainyard.spec.units import format_size
from trainyard.steps import YES, Answer, Step, no
from trainyard.wording import named

# Options of `ray start` by the words of the cluster file.
_OPTIONS = {"num-cpus": "cpus", "num-gpus": "gpus", "memory": "memory"}
_OF_SIZES = ("count", "min", "max")
_OF_GROUP = ("count", "min", "max", "idle_timeout", *_OPTIONS.values())
_SIMULATED = "kuberay.simulated_gpus"
_AUTOSCALER = "the head's autoscaler, which groups that grow need,"
# Words that follow from a node's size, and are not listed with it.
_FOLLOWS = re.compile(
    r"resources|object-store|volumes|NVIDIA_VISIBLE_DEVICES|runtimeClassName|tolerations"
)
_OF_SIZE = (*_OPTIONS.values(), _SIMULATED)
# All that a RayCluster says, by group and word.
Words = dict[tuple[str, str], Any]
# The API server's words for a field that its CRD does not know (structured-merge-diff).
_UNKNOWN_FIELD = "field not declared in schema"


@dataclass(frozen=True)
class Change:
    """One difference, as people read it. `applied`: KubeRay carries it out on a running cluster.

    `ends_nodes`: and it ends nodes for it, as the group gets smaller.
    """

    text: str
    applied: bool = False
    ends_nodes: bool = False


def changes(live: Object, desired: Object) -> tuple[Change, ...]:
    """Return every difference between the live RayCluster and the API server's dry run.

    The present number of nodes of a growing group is the autoscaler's decision, and no difference.
    """
    old = _described(live)
    new = _described(desired)
    differing = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    moved = [group for group, word in differing if not word]
    differing = [(group, word) for group, word in differing if not word or group not in moved]
    if any(word in _OF_SIZE for _, word in differing):
        differing = [(group, word) for group, word in differing if not _FOLLOWS.search(word)]

    resized = [
        group for group, word in differing if word == "count" and (group, "max") in differing
    ]
    found = [_resized(group, old, new) for group in resized]

    for group, word in differing:
        if group not in resized or word not in _OF_SIZES:
            found.append(_change(group, word, old.get((group, word)), new.get((group, word))))

    return tuple(dict.fromkeys(found))


def _resized(group: str, old: Words, new: Words) -> Change:
    """Return the change of a group that is fixed on one side and grows on the other."""
    now, then = (
        (words.get((group, "count")), words.get((group, "count")))
        if (group, "count") in words
        else (words.get((group, "min")), words.get((group, "max")))
        for words in (old, new)
    )

    shown = []
    for sizes in (now, then):
        shown.append("to".join(f" {size or 0} " for size in dict.fromkeys(sizes)).strip())

    return Change(
        f"{group}: {shown[0]} nodes now, {shown[1]} desired",
        applied=True,
        ends_nodes=(now[1] or 0) > (then[1] or 0),
    )


def _described(ray_cluster: Object) -> Words:
    """Return all that a RayCluster says, by group ("" for the whole) and word.

    A word is the file's where it has one. A group itself has the word "".
    """
    spec = ray_cluster["spec"]
    simulated = (ray_cluster["metadata"].get("annotations") or {}).get(naming.SIMULATED)
    words = {
        ("", _SIMULATED): simulated,
        ("", "auth"): spec.get("authOptions"),
        ("", "Ray"): spec.get("rayVersion"),
    }

    words["", _AUTOSCALER] = spec.get("enableInTreeAutoscaling"), spec.get("autoscalerOptions")
    every = {f"workers.{name}": group for name, group in groups(ray_cluster).items()}
    for name, group in {"head": spec["headGroupSpec"], **every}.items():
        template = group["template"]
        container = group["template"]["spec"]["containers"][0]
        pod = {
            **template["spec"],
            **template["metadata"],
            **container,
            "containers": None,
            "env": None,
        }

        least = group.get("minReplicas")
        most = group.get("maxReplicas")
        of_group = {
            **{
                _OPTIONS.get(option, option): value
                for option, value in group["rayStartParams"].items()
            },
            **({"count": group.get("replicas")} if least == most else {"min": least, "max": most}),
            "idle_timeout": group.get("idleTimeoutSeconds"),
            "Ray's labels": group.get("labels"),
            **{f"the pods' {key}": value for key, value in pod.items() if key != "image"},
            **{f"env.{variable['name']}": variable for variable in container.get("env") or ()},
            "image": container["image"],
        }

        words |= {(name, ""): True, **{(name, word): value for word, value in of_group.items()}}

    return words


def carried(desired: Object, live: Object | None) -> Object:
    """Return what to send over a live RayCluster: the autoscaler's decisions stay.

    The groups are one list to the API server (the CRD names no key), so all of it is sent.
    """
    now = groups(live) if live else {}
    every = [{**group, **_decided(group, now.get(name))} for name, group in groups(desired).items()]
    if every:
        return {**desired, "spec": {**desired["spec"], "workerGroupSpecs": every}}
    return desired


def _decided(group: Object, live: Object | None) -> Object:
    if live is None or "replicas" in group:
        return {}
    now = min(max(live.get("replicas") or 0, group["minReplicas"]), group["maxReplicas"])
    strategy = live.get("scaleStrategy")
    return {"replicas": now, **({"scaleStrategy": strategy} if strategy else {})}


def _change(group: str, word: str, old: Any, new: Any) -> Change:
    if not word:
        return Change(f"{group} is {'new' if old is None else 'gone'}", applied=old is None)
    if word not in (*_OF_GROUP, _SIMULATED, "image"):
        return Change(f"{word} differs")
    shown = []
    for value in (old, new):
        shown.append(format_size(int(value)) if word == "memory" and value else value or 0)
    is_size = word in ("count", "min", "max")
    return Change(
        f"{f'{group}.' if word in _OF_GROUP else ''}{word}: {shown[0]} now, {shown[1]} desired",
        applied=is_size or word == "idle_timeout",
        ends_nodes=word in ("count", "max") and (old or 0) > (new or 0),
    )


def differences(desired: Desired) -> tuple[Change, ...]:
    """Return the differences between the running RayCluster and the file, by a dry run."""
    if desired.running is None:
        return ()
    return changes(desired.running, _send(desired, desired.running, dry_run=True))


def document(desired: Desired) -> Object:
    return carried(
        desired.documents.ray_cluster, None if desired.tools.recreate else desired.running
    )


def refusal(desired: Desired, found: Sequence[Change]) -> RequestError | None:
    """Return why KubeRay cannot make a running cluster what the file asks; None if it can."""
    ignored = [change.text for change in found if not change.applied]
    if not ignored or desired.tools.recreate:
        return None
    return RequestError(
        "the cluster file asks for what KubeRay does not change on a running cluster; to replace "
        "it ends everything on it",
        where="; ".join(ignored),
        hint="If that is meant: trainyard cluster.up --recreate",
    )


def step(desired: Desired, found: Sequence[Change], *, after: str | None) -> Step:
    """Return the step after which the RayCluster is what the file asks for."""

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
    """Return the step after which a former RayCluster is gone, None if none has to go."""
    live = desired.live
    where = desired.location
    if live is not None and not desired.is_new:
        return None
    uids = removal.uids(where, live, desired.pods)
    if not uids:
        return None
    if desired.never_started:
        title = "Remove the cluster that never started"
    else:
        title = "Remove the former cluster"
    disruptive = desired.tools.recreate and not desired.never_started
    return removal.ray_cluster_step(where, "former-ray-cluster", title, uids, disruptive=disruptive)


def _owned(body: Object, live: Object | None) -> Object:
    """Return the body with the owner of the live RayCluster, which does not change."""
    if live is None:
        return body
    annotations = {**body["metadata"]["annotations"], naming.OWNER: ownership.named_by(live)}
    return {**body, "metadata": {**body["metadata"], "annotations": annotations}}


def _send(desired: Desired, live: Object | None, *, dry_run: bool) -> Object:
    """Apply the RayCluster over the live one, if any; return the API server's result."""
    where = desired.location
    body = _owned(carried(desired.documents.ray_cluster, live), live)
    try:
        return where.kube.apply(RAY_CLUSTER, body, namespace=where.namespace, dry_run=dry_run)
    except InvalidError as error:
        if _UNKNOWN_FIELD not in str(error):
            raise
        raise PrerequisiteError(
            "Kubernetes knows an older RayCluster than its KubeRay operator: Helm does not "
            "upgrade CRDs",
            where=error.what,
            hint=f"Have its CRDs applied: {operator.how_to_apply(where.section.operator)}",
        ) from error
