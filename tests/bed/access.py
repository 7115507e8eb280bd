"""A user of a cluster with rights in one namespace only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.bed.control_plane import kubeconfig, secret

if TYPE_CHECKING:
    from tests.bed.kubernetes import KubeBed

USER = "trainyard-user"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "kuberay.md"
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
kind: RoleBinding
metadata: {{name: {user}, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: trainyard}}
subjects: [{{kind: ServiceAccount, name: {user}, namespace: {namespace}}}]
"""


def documented_role() -> dict[str, Any]:
    """Return the Role that docs/kuberay.md documents, so that tests run with exactly its rights."""
    blocks = PAGE.read_text().split("```yaml\n")[1:]
    role: dict[str, Any] = yaml.safe_load(blocks[0].partition("```")[0])
    return role


def restricted(bed: KubeBed, namespace: str) -> Path:
    """Return a kubeconfig for one namespace; the namespace is created if it is missing."""
    bed.apply(MANIFEST.format(user=USER, namespace=namespace))
    role = {**documented_role(), "metadata": {"name": "trainyard", "namespace": namespace}}
    bed.apply(json.dumps(role))
    token = bed.kubectl("create", "token", USER, "-n", namespace, "--duration=24h").stdout.strip()
    text = kubeconfig(
        bed.plane.url, bed.plane.authority.certificate, {"token": token}, namespace=namespace
    )
    return secret(bed.home / f"kubeconfig-{namespace}", text)
