"""Kinds of Kubernetes objects, rights and quantities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# An object of the Kubernetes API, with the API's own fields.
Object = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A kind of objects; `plural` is its name in URLs.

    `api` is its group and version, such as "v1" or "ray.io/v1".
    """

    api: str
    plural: str
    name: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        return self.api.rpartition("/")[0]

    @property
    def root(self) -> str:
        if self.group:
            return f"/apis/{self.api}"
        return f"/api/{self.api}"

    def path(self, namespace: str | None, name: str = "", *, part: str = "") -> str:
        """Return the path of an object, of its `part` ("log"), or of the kind.

        Without a namespace, the path covers all namespaces. Cluster-scoped
        kinds ignore it.
        """
        path = self.root
        if self.namespaced and namespace:
            path += f"/namespaces/{namespace}"
        path += f"/{self.plural}"
        if name:
            path += f"/{name}"
        if part:
            path += f"/{part}"
        return path


@dataclass(frozen=True)
class Right:
    """A right as in a Role; `resource` is like `pods/log`, "*" means all."""

    verb: str
    group: str
    resource: str


def quantity(text: str) -> float:
    """Read a Kubernetes quantity: `500m` is 0.5, `2Gi` 2147483648."""
    from kubernetes.utils import parse_quantity

    return float(parse_quantity(text))


POD = Kind("v1", "pods", "Pod")
SECRET = Kind("v1", "secrets", "Secret")
SERVICE = Kind("v1", "services", "Service")
CLAIM = Kind("v1", "persistentvolumeclaims", "PersistentVolumeClaim")
EVENT = Kind("v1", "events", "Event")
NAMESPACE = Kind("v1", "namespaces", "Namespace", namespaced=False)
NODE = Kind("v1", "nodes", "Node", namespaced=False)
DEPLOYMENT = Kind("apps/v1", "deployments", "Deployment")
SERVICE_ACCOUNT = Kind("v1", "serviceaccounts", "ServiceAccount")
BUDGET = Kind("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy")
ROLE = Kind("rbac.authorization.k8s.io/v1", "roles", "Role")
ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding")
CRD = Kind(
    "apiextensions.k8s.io/v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
RAY_CLUSTER = Kind("ray.io/v1", "rayclusters", "RayCluster")
RAY_JOB = Kind("ray.io/v1", "rayjobs", "RayJob")
RAY_SERVICE = Kind("ray.io/v1", "rayservices", "RayService")
