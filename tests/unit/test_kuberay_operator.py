"""KubeRay's operator: one that is there is used, one that is missing is installed, its CRDs first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.fake_helm import FakeHelm, crd, deployment
from tests.unit.fake_kube import FakeKube, location, named
from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import operator
from trainyard.backends.kuberay.operator import Kuberay
from trainyard.errors import PrerequisiteError
from trainyard.seams.helm import Release
from trainyard.seams.kube.types import CRD, DEPLOYMENT, NAMESPACE
from trainyard.steps import Step

PENDING = Release("kuberay-operator", 1, "pending-install", "Initial install underway")


@pytest.fixture
def helm(monkeypatch: pytest.MonkeyPatch) -> FakeHelm:
    """Return the Helm that is found; a test gives it its Kubernetes."""
    found = FakeHelm(FakeKube())
    monkeypatch.setattr(operator, "helm_of", lambda *_: found)
    monkeypatch.setattr("time.sleep", lambda _: None)
    return found


def read(helm: FakeHelm, kube: FakeKube, **section: Any) -> Kuberay:
    helm.kube = kube
    return operator.read(location(kube, **section), Tools(Path("/nowhere"), {}, "kuberay"))


def run(step: Step) -> None:
    if not step.done().holds:
        step.do()
    assert step.done().holds


def test_one_that_is_there_is_used_whoever_installed_it(helm: FakeHelm) -> None:
    (step,) = operator.steps(read(helm, FakeKube((DEPLOYMENT, deployment(space="theirs")))))
    assert step.title == "Check the KubeRay operator"
    run(step)
    assert helm.did == []


def test_one_that_does_not_run_yet_is_waited_for(helm: FakeHelm) -> None:
    (step,) = operator.steps(read(helm, FakeKube((DEPLOYMENT, deployment(available="False")))))
    assert step.done().detail == "it does not run yet"


def test_where_there_is_none_its_crds_come_first_and_that_of_ray_clusters_last(helm: FakeHelm) -> None:
    kube = FakeKube(unknown=["rayclusters"])
    kuberay = read(helm, kube)
    crds, installing = operator.steps(kuberay)
    assert (crds.title, crds.done().detail) == ("Apply KubeRay's CRDs (1.5.1)", "RayClusters are not served yet")
    crds.do()
    assert kube.changed == [f"apply CustomResourceDefinition {name}.ray.io" for name in ("rayjobs", "rayclusters")]
    assert kube.objects[(CRD.plural, "", "rayclusters.ray.io")]["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "trainyard"
    }
    assert (installing.title, installing.after) == ("Install the KubeRay operator 1.5.1", crds.title)
    run(installing)
    assert helm.did == ["crds", "install"]
    assert helm.made == Release("kuberay-operator", 1, "deployed", "by trainyard: 1.5.1")
    assert kube.names(NAMESPACE) == {"kuberay-system"}


def test_crds_that_an_older_kuberay_left_are_brought_up_and_stay_theirs(helm: FakeHelm) -> None:
    kube = FakeKube((CRD, crd("rayclusters.ray.io", old=True)))
    crds, _ = operator.steps(read(helm, kube))
    assert crds.done().detail == "they are those of an older KubeRay"
    run(crds)
    assert not kube.objects[(CRD.plural, "", "rayclusters.ray.io")]["metadata"]["labels"]


def test_a_release_of_ours_whose_helm_was_killed_is_put_right_although_its_operator_may_run(helm: FakeHelm) -> None:
    helm.made = PENDING
    kube = FakeKube((DEPLOYMENT, deployment()), (NAMESPACE, named("kuberay-system", made_by="trainyard")))
    run(operator.steps(read(helm, kube))[-1])
    assert helm.did == ["recover", "install"]


def test_a_release_of_somebody_else_is_not_touched(helm: FakeHelm) -> None:
    helm.made = Release("kuberay-operator", 3, "failed", "timed out")
    kuberay = read(helm, FakeKube())
    with pytest.raises(PrerequisiteError) as error:
        operator.steps(kuberay)[-1].do()
    assert error.value.lines()[:2] == [
        "there is a Helm release kuberay-operator in namespace kuberay-system that Trainyard did not make",
        "  at its status is failed; timed out",
    ]
    assert helm.did == []


@pytest.mark.parametrize(
    ("kube", "section", "what"),
    [
        (
            FakeKube((DEPLOYMENT, deployment(image="kuberay/operator:v1.4.2"))),
            {},
            "the KubeRay operator that is there is 1.4.2; clusters with a token need 1.5.0 or newer",
        ),
        (
            FakeKube((DEPLOYMENT, deployment(watches="prod,dev"))),
            {},
            "the KubeRay operator that is there does not look after namespace team, only after prod, dev",
        ),
        (
            FakeKube(),
            {"operator": {"install": False}},
            "there is no KubeRay operator, and the cluster file says that somebody else installs it",
        ),
        (
            FakeKube(forbidden=["deployments"], unknown=["rayclusters"]),
            {},
            "this Kubernetes does not know what a RayCluster is, and you may not see whether KubeRay's operator is "
            "there",
        ),
    ],
)
def test_what_is_not_ours_to_mend_is_said(helm: FakeHelm, kube: FakeKube, section: dict[str, Any], what: str) -> None:
    with pytest.raises(PrerequisiteError) as error:
        read(helm, kube, **section)
    assert error.value.what == what


def test_who_may_not_see_operators_takes_it_that_there_is_one(helm: FakeHelm) -> None:
    assert operator.steps(read(helm, FakeKube(forbidden=["deployments"]))) == []


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("quay.io/kuberay/operator:v1.5.1", (1, 5, 1)),
        ("r:5000/mirror/kuberay-operator:1.6.0-rc.0", (1, 6, 0)),
        ("kuberay/operator@sha256:0", ()),
        ("kuberay/operator:nightly", ()),
    ],
)
def test_the_version_is_that_of_the_image(image: str, version: tuple[int, ...]) -> None:
    found = operator.find(FakeKube((DEPLOYMENT, deployment(image=image))))  # type: ignore[arg-type]
    assert found
    assert found[0].version == version
