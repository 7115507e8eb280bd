"""What goes with `--purge`: what we made for clusters in general, as long as nobody else needs it."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest

from tests.unit.fake_kube import FakeKube, named, site
from trainyard import steps
from trainyard.backends.kuberay.operators.operator import HelmRelease
from trainyard.backends.kuberay.removing import purge, ray_users, stuck, tenants
from trainyard.backends.kuberay.removing.purge import General
from trainyard.errors import LeftoverError, PrerequisiteError, RequestError
from trainyard.progress import PlainProgress
from trainyard.seams.kube.types import (
    CONFIG_MAP,
    CRD,
    DEPLOYMENT,
    NAMESPACE,
    POD,
    RAY_CLUSTER,
    RAY_JOB,
    REPLICA_SET,
    SECRET,
    SERVICE_ACCOUNT,
    Kind,
    Object,
)
from trainyard.spec.kubernetes import Operator as Section
from trainyard.steps import Step

CERTIFICATE = Kind("cert-manager.io/v1", "certificates", "Certificate")
OURS = HelmRelease("kuberay-operator", "kuberay-system")


class FakeHelm:
    """Helm with the releases that there are; what it uninstalls is gone."""

    def __init__(self, kube: FakeKube, *there: HelmRelease) -> None:
        self.kube, self.there = kube, set(there)

    def release(self, name: str, namespace: str) -> object | None:
        return "a release" if HelmRelease(name, namespace) in self.there else None

    def uninstall(self, name: str, namespace: str) -> None:
        self.there.discard(HelmRelease(name, namespace))
        for kind in (DEPLOYMENT, POD, SECRET):
            for one in self.kube.list(kind, namespace=namespace):
                self.kube.delete(kind, one["metadata"]["name"], namespace=namespace)


def crd(plural: str, kind: str, *, group: str = "ray.io", made_by: str = "trainyard") -> Object:
    one = named(f"{plural}.{group}", made_by=made_by)
    spec = {"group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind}}
    return {**one, "spec": {**spec, "versions": [{"name": "v1", "storage": True}]}}


def deployment(*, namespace: str = "kuberay-system", release: str = "kuberay-operator") -> Object:
    labels = {"app.kubernetes.io/name": "kuberay-operator"}
    one = named("kuberay-operator", namespace=namespace)
    one["metadata"] |= {"labels": labels, "generation": 1, "annotations": {"meta.helm.sh/release-name": release}}
    template = {"spec": {"containers": [{"image": "quay.io/kuberay/operator:v1.5.1"}]}}
    return {**one, "spec": {"selector": {"matchLabels": labels}, "template": template}}


def kubernetes(*, made_by: str = "trainyard") -> FakeKube:
    """Return a Kubernetes as cluster.up leaves it, after `down`."""
    kube = FakeKube()
    for name in ("team", "kuberay-system"):
        kube.put(NAMESPACE, named(name, made_by=made_by))
        kube.put(SERVICE_ACCOUNT, named("default", namespace=name))
        kube.put(CONFIG_MAP, named("kube-root-ca.crt", namespace=name))
    kube.put(CRD, crd("rayclusters", "RayCluster", made_by=made_by))
    kube.put(CRD, crd("rayjobs", "RayJob", made_by=made_by))
    kube.put(CRD, crd("certificates", "Certificate", group="cert-manager.io", made_by="helm"))
    kube.put(DEPLOYMENT, deployment())
    operator = named("kuberay-operator-x", namespace="kuberay-system")
    operator["metadata"]["labels"] = {"app.kubernetes.io/name": "kuberay-operator"}
    operator["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "x", "uid": "x"}]
    kube.put(POD, operator)
    record = named("sh.helm.release.v1.kuberay-operator.v1", namespace="kuberay-system")
    record["metadata"]["labels"] = {"name": "kuberay-operator", "owner": "helm"}
    kube.put(SECRET, {**record, "type": "helm.sh/release.v1"})
    return kube


def purging(kube: FakeKube, release: HelmRelease | None = OURS, *, unknown: str = "") -> list[Step]:
    helm: Any = FakeHelm(kube, OURS)
    return purge.steps_of(General(site(kube), helm, release, "kuberay-system", unknown))


def titles(todo: list[Step]) -> list[str]:
    return [one.title for one in todo]


def run(todo: list[Step]) -> list[str]:
    progress = PlainProgress(StringIO(), now=lambda: 0.0)
    return [result.title for result in steps.run(todo, progress) if result.changed]


def test_what_we_made_goes_and_the_second_time_there_is_nothing() -> None:
    kube = kubernetes()
    assert run(purging(kube)) == [
        "Uninstall the KubeRay operator from namespace kuberay-system",
        "Remove KubeRay's CRDs: rayclusters.ray.io, rayjobs.ray.io",
        "Remove namespace kuberay-system",
        "Remove namespace team",
    ]
    assert kube.names(CRD) == {"certificates.cert-manager.io"}
    assert (kube.names(NAMESPACE), kube.names(POD)) == (set(), set())
    assert run(purging(kube, None)) == []


def test_a_purge_that_was_killed_after_the_operator_goes_on_with_the_rest() -> None:
    kube = kubernetes()
    steps.run(purging(kube)[:1], PlainProgress(StringIO(), now=lambda: 0.0))
    assert run(purging(kube, None)) == [
        "Remove KubeRay's CRDs: rayclusters.ray.io, rayjobs.ray.io",
        "Remove namespace kuberay-system",
        "Remove namespace team",
    ]


def test_what_somebody_else_made_stays() -> None:
    kube = kubernetes(made_by="helm")
    before = dict(kube.objects)
    todo = purging(kube, None)
    assert titles(todo) == [
        "Leave the KubeRay operator: Trainyard did not install one",
        "Leave KubeRay's CRDs: Trainyard did not make them",
        "Leave namespace kuberay-system: Trainyard did not make it",
        "Leave namespace team: Trainyard did not make it",
    ]
    assert (run(todo), kube.objects) == ([], before)


def test_crds_of_ours_stay_for_the_operator_of_others() -> None:
    kube = kubernetes()
    assert titles(purging(kube, None))[1] == "Leave KubeRay's CRDs: the operator in namespace kuberay-system needs them"


@pytest.mark.parametrize("release", [OURS, None])
def test_a_purge_is_refused_while_others_live_from_the_operator(release: HelmRelease | None) -> None:
    kube = kubernetes()
    kube.put(RAY_CLUSTER, named("lab", cluster="lab"))
    kube.put(RAY_CLUSTER, named("lab", namespace="b", cluster="lab"))
    kube.put(RAY_CLUSTER, named("other", cluster="other"))
    kube.put(RAY_JOB, named("nightly", namespace="c"))
    with pytest.raises(RequestError) as caught:
        purging(kube, release)
    assert caught.value.lines() == [
        "the KubeRay operator does not go: 3 others live from it",
        "  at RayCluster b/lab, RayCluster team/other, RayJob c/nightly",
        "  -> Leave out --purge: this cluster alone goes then. Or remove those first.",
    ]


def test_our_own_cluster_that_is_still_there_refuses_nothing() -> None:
    kube = kubernetes()
    kube.put(RAY_CLUSTER, named("lab", cluster="lab"))
    assert titles(purging(kube))[0] == "Uninstall the KubeRay operator from namespace kuberay-system"


def test_a_purge_is_refused_where_that_cannot_be_asked() -> None:
    kube = kubernetes()
    kube.forbidden = {"all rayjobs"}
    with pytest.raises(PrerequisiteError) as caught:
        purging(kube)
    assert caught.value.lines() == [
        "whether others need the KubeRay operator cannot be told, so that it does not go",
        "  at ops may not list rayjobs",
        "  -> Leave out --purge; who may look into all namespaces can purge.",
    ]


def test_somebody_who_comes_while_the_cluster_goes_keeps_the_operator() -> None:
    kube = kubernetes()
    todo = purging(kube)
    kube.put(RAY_CLUSTER, named("other", namespace="b"))
    with pytest.raises(RequestError):
        run(todo)
    assert DEPLOYMENT.plural in {plural for plural, _, _ in kube.objects}


def test_a_namespace_with_something_of_others_stays_and_says_why() -> None:
    kube = kubernetes()
    kube.put(CONFIG_MAP, named("notes"))
    kube.put(SECRET, named("lab", cluster="lab"))
    kube.put(CERTIFICATE, named("web"))
    todo = purging(kube)
    assert titles(todo)[3] == "Leave namespace team: Certificate web, ConfigMap notes are in it"


def test_something_that_comes_into_the_namespace_meanwhile_keeps_it() -> None:
    kube = kubernetes()
    todo = purging(kube)
    kube.put(POD, named("theirs"))
    with pytest.raises(LeftoverError) as caught:
        run(todo)
    assert caught.value.what == "namespace team cannot go: Pod theirs is in it"
    assert "team" in kube.names(NAMESPACE)


def test_without_rights_for_the_whole_kubernetes_all_of_it_stays() -> None:
    kube = kubernetes()
    kube.forbidden = {"customresourcedefinitions", "namespaces", "all deployments"}
    assert titles(purging(kube, None, unknown="helm is not installed")) == [
        "Leave the KubeRay operator: who made it cannot be told (helm is not installed)",
        "Leave KubeRay's CRDs: Trainyard did not make them",
        "Leave namespace kuberay-system: what is in it cannot be told (ops may not get namespaces)",
        "Leave namespace team: what is in it cannot be told (ops may not get namespaces)",
    ]


def test_a_namespace_that_hangs_is_told_in_kubernetes_own_words() -> None:
    message = "Some content in the namespace has finalizers remaining: example.com/x in 1 resource instances"
    conditions = [
        {"type": "NamespaceFinalizersRemaining", "status": "True", "message": message},
        {"type": "NamespaceDeletionDiscoveryFailure", "status": "False", "message": "All resources discovered"},
    ]
    one = {"metadata": {"name": "team"}, "status": {"conditions": conditions}}
    assert stuck.error(site(FakeKube()), NAMESPACE, [one]).lines() == [
        "Namespace team is to be removed, and is not empty",
        "  at context lab",
        f"  -> {message}. Then repeat the same command.",
    ]


def test_a_copy_of_our_raycluster_keeps_the_namespace() -> None:
    kube = kubernetes()
    copy = kube.put(RAY_CLUSTER, named("lab2", cluster="lab"))
    kube.put(POD, named("lab2-head", cluster="lab", owner=copy))
    assert tenants.tenants(kube, "team", cluster="lab") == ["RayCluster lab2"]  # type: ignore[arg-type]


def test_replica_sets_and_what_belongs_to_something_elsewhere_are_tenants() -> None:
    kube = kubernetes()
    bare = kube.put(REPLICA_SET, named("bare"))
    pod, guest = named("bare-x"), named("guest")
    pod["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "bare", "uid": bare["metadata"]["uid"]}]
    guest["metadata"]["ownerReferences"] = [{"kind": "ClusterThing", "name": "x", "uid": "x"}]
    kube.put(POD, pod)
    kube.put(CONFIG_MAP, guest)
    found = tenants.tenants(kube, "team", cluster="lab")  # type: ignore[arg-type]
    assert found == ["ConfigMap guest", "ReplicaSet bare"]


def test_a_kind_is_asked_for_in_a_version_that_is_served() -> None:
    one = crd("rayclusters", "RayCluster")
    old, new = {"name": "v1alpha1", "storage": True, "served": False}, {"name": "v1", "served": True}
    one["spec"]["versions"] = [old, new]
    assert ray_users.kind_of(one).api == "ray.io/v1"
    one["spec"]["versions"] = [{**old, "served": True}, new]
    assert ray_users.kind_of(one).api == "ray.io/v1alpha1"


class NoHelm:
    """What there is without Helm: an error."""

    def release(self, name: str, namespace: str) -> None:
        raise PrerequisiteError("helm is not installed")


def without_helm(kube: FakeKube) -> General:
    helm: Any = NoHelm()
    return purge.general_of(site(kube), helm, Section())


@pytest.mark.parametrize("there", [(CRD,), (NAMESPACE,)])
def test_without_helm_nothing_goes_while_there_is_something_of_ours(there: tuple[Kind, ...]) -> None:
    kube = kubernetes()
    kube.objects = {key: one for key, one in kube.objects.items() if key[0] in {kind.plural for kind in there}}
    with pytest.raises(PrerequisiteError, match="helm is not installed"):
        without_helm(kube)


def test_helm_is_not_needed_where_nothing_is_ours() -> None:
    assert without_helm(kubernetes(made_by="helm")).unknown == "helm is not installed"
    assert without_helm(FakeKube((NAMESPACE, named("team", made_by="trainyard")))).unknown == "helm is not installed"
