"""What the user must be allowed to do on Kubernetes; all that is missing is said at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainyard.backends.kuberay.there import There, side_by_side
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
from trainyard.spec.cluster import ClusterSpec

_REVIEW = Kind("authentication.k8s.io/v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)


@dataclass(frozen=True)
class Need:
    """Something that must be allowed; no namespace: everywhere. `part` is one of an object, such as `log`."""

    verb: str
    kind: Kind
    namespace: str | None = None
    part: str = ""

    def __str__(self) -> str:
        what = self.kind.plural + f".{self.kind.group}" * bool(self.kind.group) + f"/{self.part}" * bool(self.part)
        where = f"in namespace {self.namespace}" if self.namespace else "in the whole of Kubernetes"
        return f"{self.verb} {what} {where}"


@dataclass(frozen=True)
class Task:
    """What `cluster.up` is going to do that not everybody may.

    `login`: hand one over for the image; `no_login`: take one back; `replace`: workers whose head is gone; `grow`: the
    claim behind `outputs`.
    """

    namespace: bool = False
    definitions: bool = False
    operator: bool = False
    trial: bool = False
    remove: bool = False
    login: bool = False
    no_login: bool = False
    grow: bool = False


def needs(spec: ClusterSpec, task: Task) -> tuple[Need, ...]:
    """Return what must be allowed for a cluster as the file wants it, and for the task at hand."""
    return tuple(dict.fromkeys(_needs(spec, task)))


def refuse_missing(kube: Kube, wanted: Sequence[Need], *, command: str) -> None:
    """Raise PrerequisiteError with all that the user may not do (SelfSubjectAccessReview)."""
    missing = missing_of(kube, wanted)
    if not missing:
        return
    listed = "".join(f"\n  - {need}" for need in missing)
    raise PrerequisiteError(
        f"{who(kube)} may not do {counted(len(missing), 'thing')} that {command} needs:{listed}",
        where=f"context {kube.context} ({kube.server})" if kube.context else kube.server,
        hint="Ask whoever runs that Kubernetes for these rights, or name another context: kuberay.context.",
    )


def who(kube: Kube) -> str:
    """Return the name that the API server knows the user by; a kubeconfig has only one of its own."""
    try:
        answer = kube.create(_REVIEW, {"apiVersion": _REVIEW.api, "kind": _REVIEW.name})
    except (KubeError, PrerequisiteError):
        # Before Kubernetes 1.28 nobody could ask that.
        return kube.user or "this user"
    user = ((answer.get("status") or {}).get("userInfo") or {}).get("username")
    return str(user or kube.user or "this user")


def missing_of(kube: Kube, wanted: Sequence[Need]) -> list[Need]:
    """Return what the user may not do."""

    def may(need: Need) -> bool:
        return kube.may(need.verb, need.kind, namespace=need.namespace, subresource=need.part)

    allowed = side_by_side(may, wanted)
    return [need for need, is_allowed in zip(wanted, allowed, strict=True) if not is_allowed]


def sees(found: There) -> bool:
    """Say whether the user may see what no cluster can be made without."""
    return found.ray_cluster.refusal is None and found.pods.refusal is None


def _needs(spec: ClusterSpec, task: Task) -> Iterator[Need]:
    section = spec.kuberay
    yield from _each(("get", "create", "patch"), RAY_CLUSTER, section.namespace)
    yield from _each(("get", "create"), SECRET, section.namespace)
    yield Need("list", POD, section.namespace)
    # The way in (a WebSocket is a GET; Kubernetes 1.35 wants `create` as well), and what pods said before they ended.
    yield Need("get", POD, section.namespace, "portforward")
    yield Need("create", POD, section.namespace, "portforward")
    yield Need("get", POD, section.namespace, "log")
    if section.storage and section.storage.size:
        yield from _each(("get", "create", *(("patch",) if task.grow else ())), CLAIM, section.namespace)
    if task.login:
        # It is applied, which is a PATCH.
        yield Need("patch", SECRET, section.namespace)
    if task.no_login:
        yield Need("delete", SECRET, section.namespace)
    if task.trial:
        yield Need("create", POD, section.namespace)
    if task.trial:
        yield Need("delete", POD, section.namespace)
    if task.remove:
        yield Need("delete", RAY_CLUSTER, section.namespace)
    if task.namespace:
        yield Need("create", NAMESPACE)
    if task.definitions:
        yield from _each(("get", "create", "patch"), CRD, None)
    if task.operator:
        yield from _operator(section.operator.namespace)


def _operator(namespace: str) -> Iterator[Need]:
    """Yield what Helm needs for the chart of the operator (helm-chart/kuberay-operator/templates) and its release."""
    for kind in (CLUSTER_ROLE, CLUSTER_ROLE_BINDING):
        yield from _each(("get", "create", "patch"), kind, None)
    for kind in (DEPLOYMENT, SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING):
        yield from _each(("get", "create", "patch"), kind, namespace)
    yield from _each(("list", "create", "update"), SECRET, namespace)


def _each(verbs: Sequence[str], kind: Kind, namespace: str | None) -> Iterator[Need]:
    yield from (Need(verb, kind, namespace) for verb in verbs)
