"""KubeRay's operator: found, judged, and never doubled or downgraded; its CRDs."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from tests.unit.fake_kube import FakeKube
from trainyard.backends.kuberay.operators import definitions, installing, operator
from trainyard.backends.kuberay.operators.installing import Installing
from trainyard.backends.kuberay.operators.operator import HelmRelease, Operator
from trainyard.backends.kuberay.there import Seen, There
from trainyard.errors import PrerequisiteError
from trainyard.seams.helm import Release
from trainyard.seams.kube.types import DEPLOYMENT, NAMESPACE
from trainyard.spec.kubernetes import Operator as Section

OURS = HelmRelease("kuberay-operator", "kuberay-system")


def deployment(
    name: str = "kuberay-operator",
    *,
    namespace: str = "kuberay-system",
    image: str = "quay.io/kuberay/operator:v1.5.1",
    args: tuple[str, ...] = (),
    labels: dict[str, str] | None = None,
    release: str | None = None,
    available: str = "True",
    observed: int = 1,
) -> dict[str, Any]:
    annotations = {"meta.helm.sh/release-name": release} if release else {}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "generation": 1,
            "labels": {"app.kubernetes.io/name": "kuberay-operator"} if labels is None else labels,
            "annotations": annotations,
        },
        "spec": {"template": {"spec": {"containers": [{"name": "op", "image": image, "args": list(args)}]}}},
        "status": {"observedGeneration": observed, "conditions": [{"type": "Available", "status": available}]},
    }


def found(**more: Any) -> Operator:
    return operator.of_deployment(deployment(**more))


def there(operators: tuple[Operator, ...] | None, *, serves: bool = True) -> There:
    nothing: Seen[Any] = Seen(None)
    return There("v1.34.2", serves, nothing, nothing, operators, nothing, nothing)


def decide(operators: tuple[Operator, ...] | None, *, ours: Release | None = None, **more: Any) -> Installing:
    section = more.pop("section", Section())
    version = more.pop("version", "1.5.1")
    return installing.decide(there(operators, **more), section, "team", ours=ours, version=version)


def release(description: str) -> Release:
    return Release("kuberay-operator", 1, "deployed", description)


def test_the_version_is_that_of_the_image_or_else_of_the_chart() -> None:
    digest = "registry.lab:5000/mirror/kuberay/operator@sha256:" + "0" * 64

    assert found().version == "1.5.1"
    assert found(image="registry.lab:5000/kuberay/operator:1.6.0-rc.1").version == "1.6.0-rc.1"
    assert found(image=digest, labels={"helm.sh/chart": "kuberay-operator-1.5.0"}).version == "1.5.0"
    assert found(image="registry.lab:5000/kuberay/operator:nightly").version is None


def test_watched_namespaces_are_read_from_the_arguments() -> None:
    assert found(args=("--enable-leader-election=true",)).watches == ()
    assert found(args=("--watch-namespace=team,other",)).watches == ("team", "other")
    assert found(args=("-watch-namespace", "team")).watches == ("team",)


def test_conditions_of_an_earlier_generation_do_not_count() -> None:
    assert found().available
    assert not found(observed=0).available
    assert not found(available="False").available


def test_an_operator_without_the_charts_label_is_found_by_its_image() -> None:
    kube = FakeKube(
        (DEPLOYMENT, deployment("ray", labels={})), (DEPLOYMENT, deployment("web", labels={}, image="web:1"))
    )

    assert [one.name for one in operator.find(kube) or ()] == ["ray"]  # type: ignore[arg-type]


def test_who_may_not_look_everywhere_is_told_nothing_about_operators_elsewhere() -> None:
    kube = FakeKube((DEPLOYMENT, deployment()), forbidden=["all deployments"])

    assert operator.find(kube, "team") is None  # type: ignore[arg-type]
    assert [one.name for one in operator.find(kube, "kuberay-system") or ()] == ["kuberay-operator"]  # type: ignore[arg-type]


def test_an_operator_that_does_not_watch_the_namespace_is_named_and_not_doubled() -> None:
    with pytest.raises(PrerequisiteError) as error:
        decide((found(args=("--watch-namespace=a,b",)),))

    assert error.value.lines() == [
        "the KubeRay operator that is there does not look after namespace team, only after a, b",
        "  at deployment kuberay-operator, namespace kuberay-system",
        "  -> Use such a namespace (`kuberay: {namespace: a}`), or have team added to the operator's watchNamespace.",
    ]


def test_of_several_operators_the_one_that_runs_is_used() -> None:
    chosen = decide((found(name="old", available="False"), found(name="new", namespace="team")))

    assert chosen.there
    assert chosen.there.name == "new"


def test_an_old_operator_of_somebody_else_is_not_replaced() -> None:
    with pytest.raises(PrerequisiteError) as error:
        decide((found(image="quay.io/kuberay/operator:v1.4.2"),))

    assert error.value.what == (
        "the KubeRay operator that is there is 1.4.2; clusters with a token need 1.5.0 or newer"
    )


def test_a_newer_operator_of_somebody_else_is_used() -> None:
    newer = found(image="quay.io/kuberay/operator:v1.7.0")

    assert decide((newer,)) == Installing("use", "1.7.0", newer, foreign=True)


def test_no_operator_is_installed() -> None:
    assert decide(()) == Installing("install", "1.5.1")


def test_no_operator_where_somebody_else_installs_it_is_an_error() -> None:
    with pytest.raises(PrerequisiteError) as error:
        decide((), section=Section(install=False))

    assert error.value.what == "there is no KubeRay operator, and the cluster file says that somebody else installs it"


def test_who_may_not_look_for_operators_needs_that_ray_clusters_are_known() -> None:
    assert decide(None) == Installing("hidden", "1.5.1")
    with pytest.raises(PrerequisiteError) as error:
        decide(None, serves=False)
    assert error.value.what.startswith("this Kubernetes does not know what a RayCluster is")


def test_an_operator_of_ours_is_left_alone_as_long_as_nothing_else_is_asked_for() -> None:
    ours = found(release="kuberay-operator")

    assert decide((ours,), ours=release(installing.description(Section(), "1.5.1"))).what == "use"


def test_an_operator_of_ours_is_upgraded_for_another_version_or_other_values() -> None:
    ours = found(release="kuberay-operator")
    before = release(installing.description(Section(), "1.5.1"))

    assert decide((ours,), ours=before, version="1.5.2").what == "upgrade"
    assert decide((ours,), ours=before, section=Section(values={"replicas": 2})).what == "upgrade"


def test_an_operator_of_ours_is_never_downgraded() -> None:
    ours = found(release="kuberay-operator", image="quay.io/kuberay/operator:v1.6.0")
    chosen = decide((ours,), ours=release("by trainyard: 1.6.0, values 0"))

    assert chosen.what == "use"
    assert chosen.remark == "the KubeRay operator is 1.6.0, newer than the 1.5.1 of the file; it is used as it is"


class KilledHelm:
    """A Helm that was killed at work; only what it left can be asked for."""

    def release(self, name: str, namespace: str) -> Release:
        return Release(name, 1, "pending-install", "Initial install underway")


def test_a_release_that_was_killed_in_a_namespace_of_ours_is_ours() -> None:
    def namespace(**labels: str) -> FakeKube:
        return FakeKube((NAMESPACE, {"metadata": {"name": "kuberay-system", "labels": labels}}))

    ours, theirs = namespace(**{"app.kubernetes.io/managed-by": "trainyard"}), namespace()

    assert installing.installed_by_us(ours, KilledHelm(), Section()) == OURS  # type: ignore[arg-type]
    assert installing.installed_by_us(theirs, KilledHelm(), Section()) is None  # type: ignore[arg-type]


def test_an_operator_whose_release_was_killed_is_put_right() -> None:
    ours = found(release="kuberay-operator")
    killed = Release("kuberay-operator", 1, "pending-install", "Initial install underway")

    assert decide((ours,), ours=killed).what == "upgrade"


def crd(*fields: str, kuberay: str | None = None, established: str = "True", served: bool = True) -> dict[str, Any]:
    schema: dict[str, Any] = {"properties": {"spec": {"properties": {one: {"type": "object"} for one in fields}}}}
    annotations = {definitions.FROM: kuberay} if kuberay else {}
    return {
        "metadata": {"name": "rayclusters.ray.io", "annotations": annotations},
        "spec": {"versions": [{"name": "v1", "served": served, "schema": {"openAPIV3Schema": schema}}]},
        "status": {"conditions": [{"type": "Established", "status": established}]},
    }


def test_a_crd_fits_if_it_is_served_and_knows_tokens() -> None:
    assert definitions.fits(crd("authOptions"))
    assert not definitions.fits(crd("headGroupSpec"))
    assert not definitions.fits(crd("authOptions", established="False"))
    assert not definitions.fits(crd("authOptions", served=False))


def test_a_crd_is_replaced_only_by_a_newer_one() -> None:
    ours = crd("authOptions", "headGroupSpec")

    assert not definitions.is_as_new(crd("headGroupSpec"), ours, version="1.5.1")
    assert definitions.is_as_new(crd("authOptions", "headGroupSpec"), ours, version="1.5.1")
    assert definitions.is_as_new(crd("authOptions", "headGroupSpec", "upgradeStrategy"), ours, version="1.5.1")
    assert definitions.is_as_new(crd("authOptions", kuberay="1.6.0"), ours, version="1.5.1")
    assert not definitions.is_as_new(crd("authOptions", kuberay="1.5.0"), ours, version="1.5.1")


def test_a_crd_is_marked_with_its_kuberay_and_as_ours_only_where_there_was_none() -> None:
    fresh = definitions.to_apply(crd("authOptions"), version="1.5.1", is_new=True)
    upgraded = definitions.to_apply(crd("authOptions"), version="1.5.1", is_new=False)

    assert fresh["metadata"]["annotations"] == {"io.trainyard/kuberay-version": "1.5.1"}
    assert fresh["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "trainyard"}
    assert "labels" not in upgraded["metadata"]
    assert "status" not in fresh


@pytest.mark.parametrize(
    ("status", "bears_pending", "is_refused"),
    [
        ("deployed", True, True),
        ("pending-install", True, False),
        ("pending-install", False, True),
    ],
)
def test_a_release_of_somebody_else_is_refused_before_anything_is_made(
    status: str, bears_pending: bool, is_refused: bool
) -> None:
    class Helm:
        def release(self, name: str, namespace: str) -> Release:
            return Release(name, 1, status, "Install complete")

    helm, release = Helm(), HelmRelease("kuberay-operator", "kuberay-system")
    with pytest.raises(PrerequisiteError) if is_refused else nullcontext():
        installing.refuse_foreign(FakeKube(), helm, release, bears_pending=bears_pending)  # type: ignore[arg-type]
