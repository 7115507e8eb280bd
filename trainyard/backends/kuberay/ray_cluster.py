"""The RayCluster itself: in what it differs from the file, the former one's end, and the step that makes it."""

from __future__ import annotations

import os
import pwd
import socket
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import partial

from trainyard.backends.kuberay import changes, finalizers, location, naming, operator, pods, wait
from trainyard.backends.kuberay.changes import Change
from trainyard.backends.kuberay.desired import Desired
from trainyard.backends.kuberay.manifest.documents import annotated
from trainyard.backends.kuberay.queries import if_allowed
from trainyard.backends.wording import named
from trainyard.errors import NotReadyError, PrerequisiteError, RequestError
from trainyard.seams.kube.errors import InvalidError
from trainyard.seams.kube.types import POD, RAY_CLUSTER, SERVICE, Kind, Object
from trainyard.steps import YES, Answer, Step, no

# What the API says of a field that its CRD does not know (structured-merge-diff).
_UNKNOWN_FIELD = "field not declared in schema"


def differences(desired: Desired) -> tuple[Change, ...]:
    """Return in what the RayCluster that runs differs from the file; the API server says it, and keeps nothing."""
    return () if desired.running is None else _differences(desired, desired.running)


def document(desired: Desired) -> Object:
    """Return the RayCluster as Kubernetes is to get it: what Ray's autoscaler decides about one that runs stays."""
    live, found = None if desired.tools.recreate else desired.running, desired.documents.ray_cluster
    return found if live is None else changes.carried(found, live)


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
            raise wait.removed(desired.location).to_error()
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
    uid = (
        str(live["metadata"]["uid"])
        if live
        else next((u for pod in desired.pods for u in _owners(pod, where.name)), "")
    )
    if not uid:
        return None
    began: list[float] = []

    def left() -> list[tuple[Kind, Object]]:
        own = where.kube.get(RAY_CLUSTER, where.name, namespace=where.namespace)
        found = [(RAY_CLUSTER, own)] if own is not None and own["metadata"]["uid"] == uid else []
        for kind in (POD, SERVICE):
            listed = if_allowed(partial(where.kube.list, kind, namespace=where.namespace)).found or []
            found += [(kind, each) for each in listed if uid in _owners(each, where.name)]
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


def _owners(found: Object, name: str) -> list[str]:
    """Return the uids of the RayClusters of this name that an object belongs to."""
    owners = found["metadata"].get("ownerReferences") or ()
    return [str(owner["uid"]) for owner in owners if (owner["kind"], owner["name"]) == (RAY_CLUSTER.name, name)]


def _differences(desired: Desired, live: Object) -> tuple[Change, ...]:
    document = changes.carried(desired.documents.ray_cluster, live)
    return changes.changes(live, _sent(desired, document, dry_run=True))


def _apply(desired: Desired) -> None:
    live = location.ray_cluster(desired.location)
    document = desired.documents.ray_cluster
    document = changes.carried(document, live) if live else annotated(document, {naming.MAKER: _us()})
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
