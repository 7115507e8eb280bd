"""`cluster.down --purge`: what we made for clusters in general goes, unless others live from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.fake_helm import FakeHelm, crd, deployment
from tests.unit.fake_kube import FakeKube, location, named
from tests.unit.step_lists import refuse_lost_ids
from trainyard.backends.contract import Site
from trainyard.backends.kuberay import purge
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.seams.helm import Release
from trainyard.seams.kube.errors import ForbiddenError
from trainyard.seams.kube.types import CLAIM, CRD, DEPLOYMENT, NAMESPACE, POD, RAY_CLUSTER, RAY_JOB
from trainyard.steps import Step

OURS = Release("deployed", "by trainyard: 1.5.1")


def made() -> FakeKube:
    """Return a Kubernetes on which we made everything."""
    return FakeKube(
        (DEPLOYMENT, deployment()),
        (CRD, crd("rayclusters.ray.io", made_by="trainyard")),
        (CRD, crd("rayjobs.ray.io")),
        (NAMESPACE, named("kuberay-system", made_by="trainyard")),
        (NAMESPACE, named("team", made_by="trainyard")),
        (RAY_CLUSTER, named("lab", cluster="lab")),
    )


def steps(
    helm: FakeHelm,
    kube: FakeKube,
    release: Release | None = None,
    *,
    breaks: PrerequisiteError | None = None,
) -> list[Step]:
    """Return the steps where Helm has this release, or breaks."""
    helm.kube, helm.made, helm.breaks = kube, release, breaks
    return purge.steps(location(kube), Site(Path("/nowhere"), {}, "kuberay"))


def run(todo: list[Step]) -> None:
    for step in todo:
        if not step.done().holds:
            step.do()
        assert step.done().holds


def test_all_that_we_made_goes_and_the_second_time_nothing_is_claimed(
    helm: FakeHelm,
) -> None:
    kube = made()
    todo = steps(helm, kube, OURS)
    refuse_lost_ids(todo)
    assert [step.title for step in todo] == [
        "Uninstall the KubeRay operator from namespace kuberay-system",
        "Remove KubeRay's CRDs: rayclusters.ray.io",
        "Remove namespaces kuberay-system and team",
    ]

    run(todo)
    assert (helm.did, kube.names(CRD), kube.names(NAMESPACE)) == (
        ["uninstall"],
        {"rayjobs.ray.io"},
        set(),
    )

    again = steps(helm, kube)
    assert [step.title for step in again][:2] == [
        "Leave the KubeRay operator: there is none that Trainyard installed",
        "Leave KubeRay's CRDs: there are none that Trainyard made",
    ]
    assert all(step.done().holds for step in again)


def test_while_others_live_from_it_nothing_goes(helm: FakeHelm) -> None:
    kube = made()
    kube.put(RAY_JOB, named("nightly", namespace="prod"))
    with pytest.raises(RequestError, match="1 other needs it\n  at RayJob prod/nightly"):
        steps(helm, kube, OURS)


def test_purge_is_refused_without_the_right_to_list_ray_jobs(helm: FakeHelm) -> None:
    kube = made()
    kube.forbidden = {"all rayjobs"}
    with pytest.raises(ForbiddenError):
        steps(helm, kube, OURS)


def test_an_operator_and_namespaces_of_others_stay(helm: FakeHelm) -> None:
    kube = FakeKube((DEPLOYMENT, deployment(space="theirs")), (NAMESPACE, named("team")))
    titles = [step.title for step in steps(helm, kube)]
    assert titles[0] == "Leave the KubeRay operator: there is none that Trainyard installed"
    assert titles[-1] == "Leave namespace team: there is none that Trainyard made"


def test_a_namespace_with_something_of_others_in_it_stays(helm: FakeHelm) -> None:
    kube = made()
    kube.put(CLAIM, named("datasets"))
    kube.put(POD, named("lab-head", cluster="lab"))
    assert steps(helm, kube, OURS)[-1].title == (
        "Leave namespace team: PersistentVolumeClaim datasets is in it"
    )


def test_a_namespace_with_another_ray_cluster_or_with_owned_pods_stays(
    helm: FakeHelm,
) -> None:
    # The operator is another one: only the namespace is Trainyard's.
    kube = FakeKube((NAMESPACE, named("team", made_by="trainyard")))
    pod = named("theirs-head")
    pod["metadata"]["ownerReferences"] = [{"kind": "RayCluster", "name": "theirs", "uid": "1"}]
    kube.put(RAY_CLUSTER, named("theirs"))
    kube.put(POD, pod)
    of_set = named("db-0")
    of_set["metadata"]["ownerReferences"] = [{"kind": "StatefulSet", "name": "db", "uid": "2"}]
    kube.put(POD, of_set)
    assert steps(helm, kube)[-1].title == (
        "Leave namespace team: Pod db-0, RayCluster theirs are in it"
    )


def test_without_helm_what_we_made_cannot_go_and_what_others_made_stays(
    helm: FakeHelm,
) -> None:
    missing = PrerequisiteError("there is no helm")
    with pytest.raises(PrerequisiteError):
        steps(helm, made(), breaks=missing)
    kube = FakeKube((NAMESPACE, named("team")))
    assert steps(helm, kube, breaks=missing)[0].title == (
        "Leave the KubeRay operator: it is not known who made it (there is no helm)"
    )
