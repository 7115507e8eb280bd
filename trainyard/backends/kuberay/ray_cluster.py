"""The RayCluster itself: what differs from the file, what KubeRay changes of that, and the step that does it."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Sequence
from datetime import datetime, timezone

from trainyard.backends.kuberay import access, names, pods, site, wait
from trainyard.backends.kuberay.documents import change
from trainyard.backends.kuberay.documents.change import Change
from trainyard.backends.kuberay.operators import definitions
from trainyard.backends.kuberay.wanted import Wanted, lacks_definitions
from trainyard.backends.wording import named
from trainyard.errors import OutsideError, PrerequisiteError, RequestError
from trainyard.seams.kube.errors import ForbiddenError, InvalidError
from trainyard.seams.kube.types import RAY_CLUSTER, Object
from trainyard.steps import YES, Answer, Step, no

# What the API says of a field that its CRD does not know (structured-merge-diff).
_UNKNOWN_FIELD = "field not declared in schema"


def differences(asked: Wanted) -> tuple[Change, ...]:
    """Return in what the RayCluster that runs differs from the file; the API server says it, and keeps nothing."""
    live = asked.ray_cluster
    if live is None:
        return ()
    if lacks_definitions(asked.there):
        # The API server does not know yet what it is to judge.
        return change.differences(live, change.carried(asked.documents.ray_cluster, live))
    try:
        return _differences(asked, live)
    except ForbiddenError:
        needs = access.needs(asked.spec, asked.task())
        access.refuse_missing(asked.site.kube, needs, command="cluster.up")
        raise


def document(asked: Wanted) -> Object:
    """Return the RayCluster as Kubernetes is to get it: what Ray's autoscaler decides about one that runs stays."""
    live = None if asked.tools.recreate else asked.ray_cluster
    wanted = asked.documents.ray_cluster
    return wanted if live is None else change.carried(wanted, live)


def refusal(asked: Wanted, found: Sequence[Change]) -> RequestError | None:
    """Return why a running cluster cannot become what the file asks, None if KubeRay makes it so."""
    ignored = [str(one) for one in found if not one.applied]
    if not ignored or asked.tools.recreate:
        return None
    return RequestError(
        "the cluster file asks for what KubeRay does not change on a running cluster; to make it anew ends everything "
        "on it",
        where="; ".join(ignored),
        hint="If that is meant: invoke cluster.up --recreate",
    )


def step(asked: Wanted, changes: Sequence[Change], *, after: str | None) -> Step:
    """Return the step after which the RayCluster is what the file asks for."""
    sent: list[bool] = []

    def done() -> Answer:
        live = site.ray_cluster(asked.site)
        if live is not None and not pods.is_leaving(live):
            # What differs is in the title.
            return no("") if _differences(asked, live) else YES
        if sent:
            raise wait.removed(asked.site).to_error(str(asked.site))
        return no("there is none")

    def apply() -> None:
        _apply(asked)
        sent.append(True)

    disruptive = any(each.ends_nodes for each in changes)
    return Step(_title(asked, changes), done=done, do=apply, after=after, disruptive=disruptive)


def maker(ray_cluster: Object) -> str:
    """Return who made a RayCluster, and when, "" if it does not say so."""
    return str((ray_cluster["metadata"].get("annotations") or {}).get(names.MAKER) or "")


def _title(asked: Wanted, changes: Sequence[Change]) -> str:
    if asked.is_new or not changes:
        return f"Make the RayCluster {asked.site.name}"
    return f"Change the RayCluster: {named([str(one) for one in changes])}"


def _differences(asked: Wanted, live: Object) -> tuple[Change, ...]:
    document = change.carried(asked.documents.ray_cluster, live)
    return change.differences(live, _sent(asked, document, dry_run=True))


def _apply(asked: Wanted) -> None:
    live = site.ray_cluster(asked.site)
    document = asked.documents.ray_cluster
    document = change.carried(document, live) if live else change.annotated(document, {names.MAKER: _us()})
    _sent(asked, document, dry_run=False)


def _us() -> str:
    """Return who we are, and when: `ops@desk at 2026-01-02 03:04 UTC`."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run as anybody
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()} at {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"


def _sent(asked: Wanted, document: Object, *, dry_run: bool) -> Object:
    try:
        return asked.site.kube.apply(RAY_CLUSTER, document, namespace=asked.site.namespace, dry_run=dry_run)
    except InvalidError as error:
        raise _explained(asked, error) from error


def _explained(asked: Wanted, error: InvalidError) -> OutsideError | PrerequisiteError:
    if _UNKNOWN_FIELD not in str(error):
        return error
    return PrerequisiteError(
        "Kubernetes knows an older RayCluster than its KubeRay operator: Helm does not upgrade CRDs",
        where=error.what,
        hint=definitions.how_to_apply(asked.kuberay.version),
    )
