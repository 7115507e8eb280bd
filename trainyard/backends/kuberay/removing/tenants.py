"""What is in a namespace that is not of one cluster: while there is anything, the namespace stays."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.backends.kuberay.operators.operator import HelmRelease
from trainyard.backends.kuberay.removing.ray_users import kind_of
from trainyard.backends.kuberay.site import is_ours
from trainyard.backends.kuberay.there import side_by_side
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.types import (
    CLAIM,
    CONFIG_MAP,
    CRD,
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    LIMIT_RANGE,
    POD,
    QUOTA,
    RAY_CLUSTER,
    REPLICA_SET,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Kind,
    Object,
)

# What people put into a namespace; what controllers make of that (endpoints, events) is no tenant.
KINDS = (
    POD,
    SERVICE,
    SECRET,
    CLAIM,
    CONFIG_MAP,
    SERVICE_ACCOUNT,
    ROLE,
    ROLE_BINDING,
    QUOTA,
    LIMIT_RANGE,
    DEPLOYMENT,
    REPLICA_SET,
    DAEMON_SET,
    JOB,
    RAY_CLUSTER,
    Kind("apps/v1", "statefulsets", "StatefulSet"),
    Kind("v1", "replicationcontrollers", "ReplicationController"),
    Kind("batch/v1", "cronjobs", "CronJob"),
    Kind("networking.k8s.io/v1", "ingresses", "Ingress"),
    Kind("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy"),
    Kind("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget"),
    Kind("autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
)
# What Kubernetes, and some that are everywhere, put into every namespace.
_EVERYWHERE = frozenset(
    {
        ("ServiceAccount", "default"),
        ("ConfigMap", "kube-root-ca.crt"),
        ("ConfigMap", "istio-ca-root-cert"),
        ("ConfigMap", "openshift-service-ca.crt"),
    }
)
_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"  # noqa: S105 (the type of a Secret)
_RELEASE = "meta.helm.sh/release-name"


def tenants(kube: Kube, namespace: str, *, cluster: str, release: HelmRelease | None = None) -> list[str]:
    """Return what would be lost with a namespace besides the cluster and the Helm release that go anyway.

    Raises ForbiddenError where the user may not look at all that may be there.
    """
    kinds = tuple({(kind.group, kind.plural): kind for kind in (*KINDS, *_defined(kube))}.values())
    listed = side_by_side(lambda kind: kube.list(kind, namespace=namespace), kinds)
    goes = release.name if release and release.namespace == namespace else None
    looked_at = frozenset(kind.name for kind in kinds)
    return sorted(
        f"{kind.name} {one['metadata']['name']}"
        for kind, found in zip(kinds, listed, strict=True)
        for one in found
        if not _goes_with_another(one, looked_at) and _stays(kind, one, cluster, goes)
    )


def _stays(kind: Kind, one: Object, cluster: str, release: str | None) -> bool:
    metadata = one["metadata"]
    if (kind.name, metadata["name"]) in _EVERYWHERE or one.get("type") == _ACCOUNT_TOKEN:
        return False
    # Who copies our RayCluster under another name copies our label.
    if is_ours(one, cluster) and (kind != RAY_CLUSTER or metadata["name"] == cluster):
        return False
    if release is None:
        return True
    of_release = (metadata.get("annotations") or {}).get(_RELEASE) == release
    is_record = one.get("type") == "helm.sh/release.v1" and (metadata.get("labels") or {}).get("name") == release
    return not (of_release or is_record)


def _goes_with_another(one: Object, looked_at: frozenset[str]) -> bool:
    """Say whether an object belongs to another one of the namespace, which is looked at by itself."""
    return any(owner["kind"] in looked_at for owner in one["metadata"].get("ownerReferences") or ())


def _defined(kube: Kube) -> Iterator[Kind]:
    """Yield the kinds of custom resources that live in namespaces."""
    for crd in kube.list(CRD):
        if crd["spec"]["scope"] == "Namespaced":
            yield kind_of(crd)
