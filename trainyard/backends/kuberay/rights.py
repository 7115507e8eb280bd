"""What the user must be allowed to do on Kubernetes: a table for each step; all that is missing is said at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.queries import side_by_side
from trainyard.backends.wording import counted
from trainyard.errors import PrerequisiteError
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.errors import KubeError
from trainyard.seams.kube.types import (
    CLAIM,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CRD,
    DEPLOYMENT,
    NAMESPACE,
    POD,
    RAY_CLUSTER,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Kind,
)

_REVIEW = Kind("authentication.k8s.io/v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
# Verbs by kind, and by part of it. A port-forward is a WebSocket, which is a GET; Kubernetes 1.35 wants `create` as
# well. An apply is a PATCH.
RIGHTS: dict[str, Sequence[tuple[str, Kind, str]]] = {
    "cluster": (
        ("get create patch", RAY_CLUSTER, ""),
        ("get create", SECRET, ""),
        ("list", POD, ""),
        ("get create", POD, "portforward"),
        ("get", POD, "log"),
    ),
    "claim": (("get create", CLAIM, ""),),
    "login": (("patch", SECRET, ""),),
    "no login": (("delete", SECRET, ""),),
    "remove": (("delete", RAY_CLUSTER, ""),),
    "namespace": (("create", NAMESPACE, ""),),
    "crds": (("get create patch", CRD, ""),),
    # What Helm needs for the chart of the operator (helm-chart/kuberay-operator/templates), and for its release.
    "operator": (
        *(("get create patch", kind, "") for kind in (CLUSTER_ROLE, CLUSTER_ROLE_BINDING)),
        *(("get create patch", kind, "") for kind in (DEPLOYMENT, SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING)),
        ("list create update", SECRET, ""),
    ),
}


@dataclass(frozen=True)
class Right:
    """Something that must be allowed; no namespace: everywhere. `part` is one of an object, such as `log`."""

    verb: str
    kind: Kind
    namespace: str | None
    part: str = ""

    def __str__(self) -> str:
        what = ".".join(filter(None, (self.kind.plural, self.kind.group))) + (f"/{self.part}" if self.part else "")
        where = f"in namespace {self.namespace}" if self.namespace else "in the whole of Kubernetes"
        return f"{self.verb} {what} {where}"


def refuse_missing(location: Location, steps: Iterable[str]) -> None:
    """Raise PrerequisiteError with all that the user may not do of what these steps need."""
    kube = location.kube
    rights = [right for step in steps for right in _of_step(step, location)]
    allowed = side_by_side(
        lambda right: kube.may(right.verb, right.kind, namespace=right.namespace, subresource=right.part), rights
    )
    missing = [right for right, is_allowed in zip(rights, allowed, strict=True) if not is_allowed]
    if not missing:
        return
    listed = "".join(f"\n  - {right}" for right in missing)
    raise PrerequisiteError(
        f"{user(kube)} may not do {counted(len(missing), 'thing')} that cluster.up needs:{listed}",
        where=f"context {kube.context} ({kube.server})" if kube.context else kube.server,
        hint="Ask whoever runs that Kubernetes for these rights, or name another context: kuberay.context.",
    )


def user(kube: Kube) -> str:
    """Return the name that the API server knows the user by; a kubeconfig has only one of its own."""
    try:
        answer = kube.create(_REVIEW, {"apiVersion": _REVIEW.api, "kind": _REVIEW.name})
    except (KubeError, PrerequisiteError):
        # Before Kubernetes 1.28 nobody could ask that.
        return kube.user or "this user"
    name = ((answer.get("status") or {}).get("userInfo") or {}).get("username")
    return str(name or kube.user or "this user")


def _of_step(step: str, location: Location) -> list[Right]:
    namespace = location.section.operator.namespace if step == "operator" else location.namespace
    return [
        Right(verb, kind, namespace if kind.namespaced else None, part)
        for verbs, kind, part in RIGHTS[step]
        for verb in verbs.split()
    ]
