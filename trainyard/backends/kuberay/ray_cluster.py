"""The RayCluster itself: in what it differs from the file, the former one's end, and the step that makes it.

Judged by KubeRay 1.5 (ray-operator/controllers/ray/raycluster_controller.go, reconcilePods): on a running cluster it
carries out sizes of groups and new groups. What stands in the template of a pod counts only for pods that are made
later, and pods of a group that is gone stay.
"""

from __future__ import annotations

import os
import pwd
import re
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial

from trainyard.backends import diff
from trainyard.backends.diff import Difference
from trainyard.backends.kuberay import finalizers, location, naming, operator, pods, wait
from trainyard.backends.kuberay.desired import Desired
from trainyard.backends.kuberay.manifest import annotated, groups
from trainyard.backends.kuberay.snapshot import if_allowed
from trainyard.backends.wording import named
from trainyard.errors import NotReadyError, PrerequisiteError, RequestError
from trainyard.seams.kube.errors import InvalidError
from trainyard.seams.kube.types import POD, RAY_CLUSTER, SERVICE, Kind, Object
from trainyard.spec.units import format_duration, format_size
from trainyard.steps import YES, Answer, Step, no

_PLACE = re.compile(r"^spec\.(?:(?P<head>headGroupSpec)|workerGroupSpecs\[(?P<group>[^]]+)\])\.?(?P<rest>.*)$")
# From where something stands in a RayCluster to the key of the file that says it; the first that fits counts. A key
# with a dot in front is one of the node's group.
_KEYS = (
    (r"rayStartParams\.(?:num-)?(cpus|gpus|memory)$", r".\1"),
    (r"(count|min|max)$", r".\1"),
    (r"idleTimeoutSeconds$", ".idle_timeout"),
    (r"rayStartParams\.object-store-memory$|.*\bvolumes\[shared-mem\]", "kuberay.shm_size"),
    (r".*\.containers\[[^]]+\]\.image$", "image"),
    (r".*\.env\[([^]]+)\]", r"env.\1"),
    (r".*\.metadata\.((?:labels|annotations).*)$", r"kuberay.\1"),
    (r".*\.affinity\b", "kuberay.spread"),
    (r".*\.securityContext\b", "kuberay.security"),
    (r".*\.nodeSelector\b", "kuberay.node_selector"),
    (r".*\.imagePullSecrets\b", "kuberay.pull_secrets"),
    (r".*\.(?:volumes|volumeMounts)\b", "kuberay.volumes"),
    (r".*\.resources\.requests\b", "kuberay.requests"),
    (r".*\.resources\.limits\b", "kuberay.gpu_resource"),
    (r".*\.tolerations\b", "kuberay.tolerations"),
    (r".*\.(runtime|priority)ClassName$", r"kuberay.\1_class"),
    (r".*\.(?:serviceAccountName|automountServiceAccountToken)$", "kuberay.service_account"),
    (r"spec\.(?:autoscalerOptions\b|enableInTreeAutoscaling$)", "the head's autoscaler, which groups that grow need,"),
    (r"spec\.authOptions\b", "auth"),
)
# What follows from the size of a node, and is not said beside it.
_FOLLOWS = re.compile(r"resources|object-store|shared-mem|NVIDIA_VISIBLE_DEVICES|runtimeClassName|tolerations")
_SIMULATED = "kuberay.simulated_gpus"
_OF_SIZE = ("cpus", "gpus", "memory")
# Values that are shown; of others it is said that they differ: some are secrets, or too large.
_SHOWN = (*_OF_SIZE, "count", "min", "max", "idle_timeout", "image", "simulated_gpus")
# What the API says of a field that its CRD does not know (structured-merge-diff).
_UNKNOWN_FIELD = "field not declared in schema"


@dataclass(frozen=True)
class Change:
    """One difference, as people read it. `applied`: KubeRay carries it out on a running cluster.

    `ends_nodes`: and it ends nodes for it, as the group gets smaller.
    """

    text: str
    applied: bool = False
    ends_nodes: bool = False

    def __str__(self) -> str:
        return self.text


def changes(live: Object, desired: Object) -> tuple[Change, ...]:
    """Return every difference; `desired` is what the API server would make of what we send: a dry run.

    How many nodes a growing group has right now is the autoscaler's business, and no difference.
    """
    found = diff.differences(_compared(live), _compared(desired))
    sized = {_place(each.path)[0] for each in found if _key(each.path).rpartition(".")[2] in _OF_SIZE}
    if any(_key(each.path) == _SIMULATED for each in found):
        sized |= {_place(each.path)[0] for each in found}
    causes = [each for each in found if not (_FOLLOWS.search(each.path) and _place(each.path)[0] in sized)]
    return tuple(dict.fromkeys(_change(_key(each.path), each) for each in causes))


def carried(desired: Object, live: Object) -> Object:
    """Return what to send over a live RayCluster: who made it, and what Ray decided about groups, stay.

    The groups are one list to the API server (the CRD names no key): whoever sends it, sends all of it.
    """
    maker = (live["metadata"].get("annotations") or {}).get(naming.MAKER)
    if maker:
        desired = annotated(desired, {naming.MAKER: maker})
    there = groups(live)
    every = [{**group, **_decided(group, there.get(name))} for name, group in groups(desired).items()]
    return {**desired, "spec": {**desired["spec"], "workerGroupSpecs": every}} if every else desired


def _decided(group: Object, live: Object | None) -> Object:
    if live is None or "replicas" in group:
        return {}
    now = min(max(live.get("replicas") or 0, group["minReplicas"]), group["maxReplicas"])
    strategy = live.get("scaleStrategy")
    return {"replicas": now, **({"scaleStrategy": strategy} if strategy else {})}


def _compared(ray_cluster: Object) -> Object:
    """Return what we send, with sizes of groups as the file says them."""
    simulated = (ray_cluster["metadata"].get("annotations") or {}).get(naming.SIMULATED)
    sized = [_with_size(group) for group in groups(ray_cluster).values()]
    return {_SIMULATED: simulated, "spec": {**ray_cluster["spec"], "workerGroupSpecs": sized}}


def _with_size(group: Object) -> Object:
    least, most, now = (group.get(key) for key in ("minReplicas", "maxReplicas", "replicas"))
    size = {"count": least if now == least else now} if least == most else {"min": least, "max": most}
    left_out = ("minReplicas", "maxReplicas", "replicas", "scaleStrategy", "numOfHosts")
    return {**{key: value for key, value in group.items() if key not in left_out}, **size}


def _place(path: str) -> tuple[str, str]:
    """Return the group that a path is about, as the file calls it, and the path within it; "" for the whole cluster."""
    match = _PLACE.match(path)
    if match is None:
        return "", path
    return "head" if match["head"] else f"workers.{match['group']}", match["rest"]


def _key(path: str) -> str:
    place, rest = _place(path)
    for pattern, key in _KEYS:
        match = re.match(pattern, rest)
        if match:
            return f"{place}{match.expand(key)}" if key.startswith(".") else match.expand(key)
    return f"{place}.{rest}".strip(".")


def _change(key: str, found: Difference) -> Change:
    word = key.rpartition(".")[2]
    old, new = found.old, found.new
    if re.fullmatch(r"workers\.[^.]+", key):
        return Change(f"{key} is {'new' if old is None else 'gone'}", applied=old is None)
    if key.startswith(("env.", "kuberay.labels.", "kuberay.annotations.")):
        return Change(f"{key} is {'new' if old is None else 'gone' if new is None else 'another'}")
    if word not in _SHOWN:
        return Change(f"{key} differs")
    is_size = word in ("count", "min", "max")
    smaller = word in ("count", "max") and (old or 0) > (new or 0)
    return Change(
        f"{key}: {_shown(word, old)} now, {_shown(word, new)} wanted",
        applied=is_size or word == "idle_timeout",
        ends_nodes=smaller,
    )


def _shown(word: str, value: object) -> str:
    if value is None:
        return "none"
    if word == "memory":
        return format_size(int(str(value)))
    return format_duration(float(str(value))) if word == "idle_timeout" else str(value)


def differences(desired: Desired) -> tuple[Change, ...]:
    """Return in what the RayCluster that runs differs from the file; the API server says it, and keeps nothing."""
    return () if desired.running is None else _differences(desired, desired.running)


def document(desired: Desired) -> Object:
    """Return the RayCluster as Kubernetes is to get it: what Ray's autoscaler decides about one that runs stays."""
    live, found = None if desired.tools.recreate else desired.running, desired.documents.ray_cluster
    return found if live is None else carried(found, live)


def refusal(desired: Desired, found: Sequence[Change]) -> RequestError | None:
    """Return why a running cluster cannot become what the file asks, None if KubeRay makes it so."""
    ignored = [str(change) for change in found if not change.applied]
    if not ignored or desired.tools.recreate:
        return None
    return RequestError(
        "the cluster file asks for what KubeRay does not change on a running cluster; to make it anew ends everything "
        "on it",
        where="; ".join(ignored),
        hint="If that is meant: invoke cluster.up --recreate",
    )


def step(desired: Desired, found: Sequence[Change], *, after: str | None) -> Step:
    """Return the step after which the RayCluster is what the file asks for."""
    sent: list[bool] = []

    def done() -> Answer:
        live = location.ray_cluster(desired.location)
        if live is not None and not pods.is_leaving(live):
            # What differs is in the title.
            return no("") if _differences(desired, live) else YES
        if sent:
            raise wait.removed(desired.location)
        return no("there is none")

    def apply() -> None:
        _apply(desired)
        sent.append(True)

    title = f"Make the RayCluster {desired.spec.name}"
    if found and not desired.is_new:
        title = f"Change the RayCluster: {named([str(change) for change in found])}"
    return Step(title, done, apply, after=after, disruptive=any(change.ends_nodes for change in found))


def replace_step(desired: Desired) -> Step | None:
    """Return the step after which a former RayCluster is gone with its pods and services, None if none has to go.

    A service that goes late would take its successor's name.
    """
    live, where = desired.live, desired.location
    if live is not None and not desired.is_new:
        return None
    former = [uid for pod in desired.pods for name, uid in location.owners(pod) if name == where.name]
    uid = pods.uid(live) if live else next(iter(former), "")
    if not uid:
        return None
    began: list[float] = []

    def left() -> list[tuple[Kind, Object]]:
        own = where.kube.get(RAY_CLUSTER, where.name, namespace=where.namespace)
        found = [(RAY_CLUSTER, own)] if own is not None and own["metadata"]["uid"] == uid else []
        for kind in (POD, SERVICE):
            listed = if_allowed(partial(where.kube.list, kind, namespace=where.namespace)).found or []
            found += [(kind, each) for each in listed if (where.name, uid) in location.owners(each)]
        return found

    def done() -> Answer:
        still = left()
        if not still:
            return YES
        if began and time.monotonic() - began[0] > finalizers.GONE_SECONDS:
            kind = still[0][0]
            held = finalizers.leftover(where, kind, [each for same, each in still if same == kind])
            raise NotReadyError(held.what, where=held.where, hint=held.hint)
        return no(f"still there: {named([each['metadata']['name'] for _, each in still])}")

    def remove() -> None:
        began.append(time.monotonic())
        where.kube.delete(RAY_CLUSTER, where.name, namespace=where.namespace, uid=uid)

    disruptive = desired.tools.recreate and not desired.never_started
    deadline = 2 * finalizers.GONE_SECONDS
    return Step(_replace_title(desired), done, remove, deadline=deadline, every=0.5, disruptive=disruptive)


def _replace_title(desired: Desired) -> str:
    if desired.never_started:
        return "Remove the cluster that never started"
    if desired.tools.recreate and desired.live is not None:
        return "Remove the cluster that is there"
    return "Wait until the former cluster is gone"


def _differences(desired: Desired, live: Object) -> tuple[Change, ...]:
    document = carried(desired.documents.ray_cluster, live)
    return changes(live, _sent(desired, document, dry_run=True))


def _apply(desired: Desired) -> None:
    live = location.ray_cluster(desired.location)
    document = desired.documents.ray_cluster
    document = carried(document, live) if live else annotated(document, {naming.MAKER: _us()})
    _sent(desired, document, dry_run=False)


def _us() -> str:
    """Return who we are, and when: `ops@desk at 2026-01-02 03:04 UTC`."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run as anybody
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()} at {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"


def _sent(desired: Desired, document: Object, *, dry_run: bool) -> Object:
    where = desired.location
    try:
        return where.kube.apply(RAY_CLUSTER, document, namespace=where.namespace, dry_run=dry_run)
    except InvalidError as error:
        if _UNKNOWN_FIELD not in str(error):
            raise
        raise PrerequisiteError(
            "Kubernetes knows an older RayCluster than its KubeRay operator: Helm does not upgrade CRDs",
            where=error.what,
            hint=f"Have its CRDs applied: {operator.how_to_apply(where.section.operator)}",
        ) from error
