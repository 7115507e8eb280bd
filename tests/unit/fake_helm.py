"""A Helm with one chart and one release, and KubeRay as it is found on a Kubernetes."""

from __future__ import annotations

from typing import Any

from tests.unit.fake_kube import FakeKube
from trainyard.seams.helm import Chart, Release
from trainyard.seams.kube.types import DEPLOYMENT, Object


class FakeHelm:
    """Install what the chart would make.

    Every question raises `breaks`, as it would without the program.
    """

    def __init__(
        self, kube: FakeKube, release: Release | None = None, breaks: Exception | None = None
    ) -> None:
        self.kube, self.made, self.breaks = kube, release, breaks
        self.did: list[str] = []

    def crds(self, chart: Chart) -> list[Object]:
        self.did.append("crds")
        return [crd("rayclusters.ray.io"), crd("rayjobs.ray.io")]

    def release(self, name: str, namespace: str) -> Release | None:
        if self.breaks:
            raise self.breaks
        return self.made

    def install(
        self, name: str, chart: Chart, namespace: str, values: dict[str, Any], *, description: str
    ) -> None:
        self.did.append("install")
        self.made = Release("deployed", description)
        self.kube.put(DEPLOYMENT, deployment())

    def uninstall(self, name: str, namespace: str) -> None:
        self.did.append("uninstall")
        self.made = None
        self.kube.objects.pop(("deployments", namespace, "kuberay-operator"), None)


def crd(name: str, *, made_by: str = "") -> Object:
    return {
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": made_by}},
        "spec": {"group": "ray.io"},
    }


def deployment(
    *, image: str = "quay.io/kuberay/operator:v1.5.1", space: str = "kuberay-system"
) -> Object:
    labels = {"app.kubernetes.io/name": "kuberay-operator"}
    return {
        "metadata": {"name": "kuberay-operator", "namespace": space, "labels": labels},
        "spec": {"template": {"spec": {"containers": [{"name": "operator", "image": image}]}}},
        "status": {"conditions": [{"type": "Available", "status": "True"}]},
    }
