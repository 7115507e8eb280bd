"""Before anything is made: whether the user may do what is needed; all that is missing is said at once."""

from __future__ import annotations

from trainyard.backends.kuberay import location
from trainyard.backends.kuberay.desired import Desired
from trainyard.backends.kuberay.snapshot import side_by_side
from trainyard.errors import PrerequisiteError
from trainyard.seams.kube.types import CLAIM, POD, RAY_CLUSTER, SECRET, Kind
from trainyard.steps import Answer, Step, nothing

# Verbs, kind and part of it, such as `log`. A port-forward is a WebSocket, which is a GET; Kubernetes 1.35 wants
# `create` as well. An apply is a PATCH.
_ALWAYS = (
    ("get create patch", RAY_CLUSTER, ""),
    ("get create", SECRET, ""),
    ("list", POD, ""),
    ("get create", POD, "portforward"),
    ("get", POD, "log"),
)


def step(desired: Desired) -> Step:
    """Return the step that only asks: it holds, or raises what the user may not do."""
    return Step("Check access to Kubernetes", lambda: _check(desired), nothing)


def _check(desired: Desired) -> Answer:
    kube, namespace = desired.location.kube, desired.location.namespace
    rights = [(verb, kind, part) for verbs, kind, part in _needed(desired) for verb in verbs.split()]
    allowed = side_by_side(
        lambda right: kube.may(right[0], right[1], namespace=namespace, subresource=right[2]), rights
    )
    missing = [
        f"{verb} {kind.plural}" + (f"/{part}" if part else "")
        for (verb, kind, part), is_allowed in zip(rights, allowed, strict=True)
        if not is_allowed
    ]
    if missing:
        raise PrerequisiteError(
            f"you may not do in namespace {namespace} what cluster.up needs: {', '.join(missing)}",
            where=f"{kube.place} ({kube.server})",
            hint="Ask whoever runs that Kubernetes for these rights, or name another context: kuberay.context.",
        )
    was_there = desired.live is not None and location.read(desired.tools) is None
    remark = f"cluster {desired.spec.name} was there already" if was_there else ""
    return Answer(True, "; ".join(filter(None, (remark, desired.image.remark))))


def _needed(desired: Desired) -> list[tuple[str, Kind, str]]:
    storage = desired.location.section.storage
    needed = [*_ALWAYS]
    if storage and storage.size:
        needed.append(("get create", CLAIM, ""))
    if desired.pull_secret is not None:
        needed.append(("patch", SECRET, ""))
    if desired.is_new and desired.live is not None:
        needed.append(("delete", RAY_CLUSTER, ""))
    return needed
