"""A user of a cluster who has one namespace and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.bed.control_plane import kubeconfig, secret

if TYPE_CHECKING:
    from tests.bed.kubernetes import KubeBed

USER = "trainyard-user"
# What Kubernetes' own role `edit` gives in a namespace, as far as Ray is concerned, and RayClusters.
MANIFEST = """
apiVersion: v1
kind: Namespace
metadata: {{name: {namespace}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: {user}, namespace: {namespace}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: {user}, namespace: {namespace}}}
rules:
  - apiGroups: [""]
    resources: [pods, services, secrets, configmaps, persistentvolumeclaims]
    verbs: [get, list, watch, create, update, patch, delete, deletecollection]
  - apiGroups: [""]
    resources: [pods/exec, pods/portforward]
    verbs: [get, create]
  - apiGroups: [""]
    resources: [pods/log, pods/status, events, endpoints, resourcequotas, limitranges, serviceaccounts, namespaces]
    verbs: [get, list, watch]
  - apiGroups: [ray.io]
    resources: [rayclusters]
    verbs: [get, list, watch, create, update, patch, delete, deletecollection]
  - apiGroups: [ray.io]
    resources: [rayclusters/status]
    verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: {user}, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {user}}}
subjects: [{{kind: ServiceAccount, name: {user}, namespace: {namespace}}}]
"""


def restricted(bed: KubeBed, namespace: str) -> Path:
    """Return a kubeconfig for one namespace, which is made if need be."""
    bed.apply(MANIFEST.format(user=USER, namespace=namespace))
    token = bed.kubectl("create", "token", USER, "-n", namespace, "--duration=24h").stdout.strip()
    text = kubeconfig(bed.plane.url, bed.plane.authority.certificate, {"token": token}, namespace=namespace)
    return secret(bed.home / f"kubeconfig-{namespace}", text)
