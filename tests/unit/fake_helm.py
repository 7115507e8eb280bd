"""A Helm with one chart and one release, and KubeRay as it is found on a Kubernetes."""

from __future__ import annotations

from typing import Any

from tests.unit.fake_kube import FakeKube
from trainyard.seams.helm import Chart, Release
from trainyard.seams.kube.types import DEPLOYMENT, Object


class FakeHelm:
    """Installs what the chart would make. `breaks` is raised by every question, as without the program."""

    def __init__(self, kube: FakeKube, release: Release | None = None, breaks: Exception | None = None) -> None:
        self.kube, self.made, self.breaks = kube, release, breaks
        self.did: list[str] = []

    def crds(self, chart: Chart) -> list[Object]:
        self.did.append("crds")
        return [crd("rayclusters.ray.io"), crd("rayjobs.ray.io")]

    def release(self, name: str, namespace: str) -> Release | None:
        if self.breaks:
            raise self.breaks
        return self.made

    def install(self, name: str, chart: Chart, namespace: str, values: dict[str, Any], *, description: str) -> None:
        self.did.append("install")
        self.made = Release(name, 1, "deployed", description)
        self.kube.put(DEPLOYMENT, deployment())

    def uninstall(self, name: str, namespace: str) -> None:
        self.did.append("uninstall")
        self.made = None
        self.kube.objects.pop(("deployments", namespace, "kuberay-operator"), None)

    def recover(self, name: str, namespace: str) -> None:
        self.did.append("recover")
        self.made = None


def crd(name: str, *, made_by: str = "", old: bool = False) -> Object:
    fields: Object = {"headGroupSpec": {}, **({} if old else {"authOptions": {}})}
    schema: Object = {"properties": {"spec": {"properties": fields}}}
    spec = {
        "group": "ray.io",
        "versions": [{"name": "v1", "served": True, "schema": {"openAPIV3Schema": schema}}],
    }
    labels = {"app.kubernetes.io/managed-by": made_by} if made_by else {}
    status = {"conditions": [{"type": "Established", "status": "True"}]}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def deployment(
    *, available: str = "True", image: str = "quay.io/kuberay/operator:v1.5.1", watches: str = "", space: str = ""
) -> Object:
    labels = {"app.kubernetes.io/name": "kuberay-operator"}
    container = {"name": "operator", "image": image, "args": [f"--watch-namespace={watches}"] if watches else []}
    return {
        "metadata": {
            "name": "kuberay-operator",
            "namespace": space or "kuberay-system",
            "generation": 1,
            "labels": labels,
        },
        "spec": {"template": {"spec": {"containers": [container]}}},
        "status": {"observedGeneration": 1, "conditions": [{"type": "Available", "status": available}]},
    }
