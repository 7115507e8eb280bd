"""KubeRay's operator: an existing one is used, a missing one installed after its CRDs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.fake_helm import FakeHelm, deployment
from tests.unit.fake_kube import FakeKube, location, named
from trainyard.backends.contract import Site
from trainyard.backends.kuberay import operator
from trainyard.backends.kuberay.operator import Kuberay
from trainyard.errors import PrerequisiteError
from trainyard.seams.helm import Release
from trainyard.seams.kube.types import CRD, DEPLOYMENT, NAMESPACE
from trainyard.steps import Step

pytestmark = pytest.mark.usefixtures("at_once")
PENDING = Release("pending-install", "Initial install underway")


def read(helm: FakeHelm, kube: FakeKube, **section: Any) -> Kuberay:
    helm.kube = kube
    return operator.read(location(kube, **section), Site(Path("/nowhere"), {}, "kuberay"))


def run(step: Step) -> None:
    if not step.done().holds:
        step.do()
    assert step.done().holds


def test_a_missing_operator_gets_its_crds_first_and_ray_clusters_last(helm: FakeHelm) -> None:
    kube = FakeKube(unknown=["rayclusters"])
    kuberay = read(helm, kube)
    crds, installing = operator.steps(kuberay)
    assert (crds.title, crds.done().detail) == (
        "Apply KubeRay's CRDs (1.5.1)",
        "RayClusters are not served yet",
    )
    crds.do()
    assert kube.changed == [
        f"apply CustomResourceDefinition {name}.ray.io" for name in ("rayjobs", "rayclusters")
    ]
    assert kube.objects[(CRD.plural, "", "rayclusters.ray.io")]["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "trainyard"
    }
    assert (installing.title, installing.after) == ("Install the KubeRay operator 1.5.1", crds.id)
    run(installing)
    assert helm.did == ["crds", "install"]
    assert helm.made == Release("deployed", "by trainyard: 1.5.1")
    assert kube.names(NAMESPACE) == {"kuberay-system"}


def test_a_pending_release_of_trainyard_is_uninstalled_and_installed(helm: FakeHelm) -> None:
    helm.made = PENDING
    run(
        operator.steps(
            read(helm, FakeKube((NAMESPACE, named("kuberay-system", made_by="trainyard"))))
        )[-1]
    )
    assert helm.did == ["uninstall", "install"]


def test_a_foreign_helm_release_is_refused_and_left_unchanged(helm: FakeHelm) -> None:
    helm.made = Release("failed", "timed out")
    kuberay = read(helm, FakeKube())
    with pytest.raises(PrerequisiteError) as error:
        operator.steps(kuberay)[-1].do()
    assert error.value.lines()[:2] == [
        (
            "there is a Helm release kuberay-operator in namespace kuberay-system that Trainyard did "
            "not make"
        ),
        "  at its status is failed; timed out",
    ]
    assert helm.did == []


@pytest.mark.parametrize(
    ("kube", "section", "what"),
    [
        (
            FakeKube((DEPLOYMENT, deployment(image="kuberay/operator:v1.4.2"))),
            {},
            ("the existing KubeRay operator is older than 1.5.0, which clusters with a token need"),
        ),
        (
            FakeKube(),
            {"operator": {"install": False}},
            "there is no KubeRay operator, and the cluster file says not to install one",
        ),
        (
            FakeKube(forbidden=["deployments"], unknown=["rayclusters"]),
            {},
            "there is no KubeRay on this Kubernetes, and you may not install it",
        ),
    ],
)
def test_an_operator_that_is_old_or_may_not_be_installed_is_refused(
    helm: FakeHelm, kube: FakeKube, section: dict[str, Any], what: str
) -> None:
    with pytest.raises(PrerequisiteError) as error:
        read(helm, kube, **section)
    assert error.value.what == what


@pytest.mark.parametrize(
    ("image", "holds"),
    [
        ("quay.io/kuberay/operator:v1.4.2", False),
        ("r:5000/mirror/kuberay-operator:1.6.0-rc.0", True),
        ("kuberay/operator@sha256:0", True),
        ("kuberay/operator:nightly", True),
    ],
)
def test_an_operator_is_known_by_its_image_and_its_version_too(
    helm: FakeHelm, image: str, holds: bool
) -> None:
    unlabelled = deployment(image=image)
    unlabelled["metadata"]["labels"] = {}
    if holds:
        assert operator.steps(read(helm, FakeKube((DEPLOYMENT, unlabelled))))[0].done().holds
    else:
        with pytest.raises(PrerequisiteError):
            read(helm, FakeKube((DEPLOYMENT, unlabelled)))
