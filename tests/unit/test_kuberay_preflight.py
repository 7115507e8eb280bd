"""What is asked before anything is made: rights, what the file names, and the namespace's own rules."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from tests.unit.fake_kube import FakeKube, named
from trainyard.backends.kuberay import access, references, there
from trainyard.backends.kuberay.access import Need, Task
from trainyard.backends.kuberay.operators import definitions
from trainyard.backends.kuberay.preflight import refuse_security
from trainyard.backends.kuberay.site import Site
from trainyard.errors import NotReadyError, PrerequisiteError, RequestError
from trainyard.seams.kube.types import (
    CLAIM,
    CRD,
    DEPLOYMENT,
    NAMESPACE,
    POD,
    RAY_CLUSTER,
    RUNTIME_CLASS,
    SECRET,
    STORAGE_CLASS,
)
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import Operator as Section


def spec(**kuberay: Any) -> ClusterSpec:
    workers = [{"name": "gpu", "gpus": 1}]
    section = {"namespace": "team", **kuberay}
    return ClusterSpec.model_validate(
        {"name": "lab", "backend": "kuberay", "image": "r:5000/ray:1", "workers": workers, "kuberay": section}
    )


def needs(task: Task | None = None, **kuberay: Any) -> set[str]:
    return {str(need) for need in access.needs(spec(**kuberay), task or Task())}


def test_a_namespace_is_enough_where_kuberay_is_there() -> None:
    assert needs() == {
        "get rayclusters.ray.io in namespace team",
        "create rayclusters.ray.io in namespace team",
        "patch rayclusters.ray.io in namespace team",
        "get secrets in namespace team",
        "create secrets in namespace team",
        "list pods in namespace team",
        "get pods/portforward in namespace team",
        "create pods/portforward in namespace team",
        "get pods/log in namespace team",
    }


def test_more_is_needed_for_more_that_is_to_be_made() -> None:
    everything = Task(*[True] * len(fields(Task)))
    more = needs(everything, storage={"size": "1GiB"}) - needs()

    assert {
        "create namespaces in the whole of Kubernetes",
        "patch customresourcedefinitions.apiextensions.k8s.io in the whole of Kubernetes",
        "create clusterroles.rbac.authorization.k8s.io in the whole of Kubernetes",
        "create deployments.apps in namespace kuberay-system",
        "delete pods in namespace team",
        "delete rayclusters.ray.io in namespace team",
        "create persistentvolumeclaims in namespace team",
        "patch persistentvolumeclaims in namespace team",
        "patch secrets in namespace team",
        "delete secrets in namespace team",
        "create roles.rbac.authorization.k8s.io in namespace kuberay-system",
        "patch rolebindings.rbac.authorization.k8s.io in namespace kuberay-system",
    } <= more
    assert needs(Task(login=True)) - needs() == {"patch secrets in namespace team"}
    assert needs(Task(no_login=True)) - needs() == {"delete secrets in namespace team"}


def test_all_that_is_not_allowed_is_said_at_once() -> None:
    kube = FakeKube()
    kube.may_not = {"create secrets", "create pods/portforward"}

    with pytest.raises(PrerequisiteError) as error:
        access.refuse_missing(kube, access.needs(spec(), Task()), command="cluster.up -f lab")  # type: ignore[arg-type]

    assert error.value.lines() == [
        "ops may not do 2 things that cluster.up -f lab needs:"
        "\n  - create secrets in namespace team"
        "\n  - create pods/portforward in namespace team",
        "  at context lab (https://192.0.2.1:6443)",
        "  -> Ask whoever runs that Kubernetes for these rights, or name another context: kuberay.context.",
    ]


def test_everything_allowed_is_silent() -> None:
    access.refuse_missing(FakeKube(), (Need("get", SECRET, "team"),), command="cluster.up")  # type: ignore[arg-type]


def storage_class(name: str, *, default: bool = False) -> dict[str, Any]:
    return {"metadata": {"name": name, "annotations": {references.DEFAULT_CLASS: "true"} if default else {}}}


def test_everything_that_the_file_names_and_is_not_there_is_said_at_once() -> None:
    asked = spec(
        runtime_class="nvidia",
        volumes=[{"target": "/data", "claim": "data"}, {"target": "/c", "secret": "there"}],
        storage={"size": "1GiB"},
    )
    kube = FakeKube((SECRET, named("there")), (STORAGE_CLASS, storage_class("slow")))

    with pytest.raises(PrerequisiteError) as error:
        references.refuse_missing(kube, asked)  # type: ignore[arg-type]

    assert error.value.what == (
        "Kubernetes does not have what the cluster file names:"
        "\n  - kuberay.runtime_class: there is no RuntimeClass called nvidia"
        "\n  - kuberay.volumes.0.claim: there is no PersistentVolumeClaim called data"
        "\n  - kuberay.storage: there is no default storage class; name one (there are: slow)"
    )


def test_a_default_storage_class_and_a_runtime_class_that_are_there_are_enough() -> None:
    kube = FakeKube(
        (STORAGE_CLASS, storage_class("fast", default=True)),
        (RUNTIME_CLASS, {"metadata": {"name": "nvidia"}}),
        (CLAIM, named("data")),
    )
    asked = spec(runtime_class="nvidia", storage={"size": "1GiB"}, volumes=[{"target": "/data", "claim": "data"}])

    assert references.refuse_missing(kube, asked) == []  # type: ignore[arg-type]


def test_what_may_not_be_looked_at_is_a_remark() -> None:
    kube = FakeKube(forbidden=["runtimeclasses", "storageclasses"])
    asked = spec(runtime_class="nvidia", storage={"size": "1GiB"})

    assert references.refuse_missing(kube, asked) == [  # type: ignore[arg-type]
        "the default storage class was not checked",
        "kuberay.runtime_class was not checked",
    ]


def test_a_runtime_class_is_for_groups_with_gpus_only() -> None:
    assert references.runtime_classes(spec(runtime_class="nvidia")) == {"gpu": "nvidia"}
    assert references.runtime_classes(spec(runtime_class="nvidia", simulated_gpus=True)) == {}


def namespace(level: str) -> dict[str, Any]:
    return {"metadata": {"name": "team", "labels": {"pod-security.kubernetes.io/enforce": level}}}


def test_a_restricted_namespace_refuses_nodes_with_privileges() -> None:
    with pytest.raises(RequestError) as error:
        refuse_security(namespace("restricted"), spec())

    assert error.value.lines() == [
        "namespace team would refuse the nodes: it takes only pods that give up every privilege",
        "  at its label pod-security.kubernetes.io/enforce=restricted",
        "  -> Write `kuberay: {security: {restricted: true}}`; the image must not need root then.",
    ]


def test_a_baseline_namespace_refuses_directories_of_hosts() -> None:
    with pytest.raises(RequestError) as error:
        refuse_security(namespace("baseline"), spec(volumes=[{"target": "/data", "host_path": "/data"}]))

    assert error.value.hint == "Use a claim, or another namespace."


def test_namespaces_without_a_level_and_restricted_clusters_are_fine() -> None:
    refuse_security(None, spec())
    refuse_security(namespace("baseline"), spec())
    refuse_security(namespace("restricted"), spec(security={"restricted": True, "run_as_user": 1000}))


def look(kube: FakeKube) -> there.There:
    return there.look(Site(kube, "team", "lab"), Section())  # type: ignore[arg-type]


def test_what_is_there_is_found_side_by_side() -> None:
    kube = FakeKube(
        (NAMESPACE, {"metadata": {"name": "team"}}),
        (RAY_CLUSTER, named("lab", cluster="lab")),
        (POD, named("lab-head", ray="lab")),
        (CRD, {"metadata": {"name": definitions.RAY_CLUSTERS}}),
    )
    found = look(kube)

    assert found.has_namespace
    assert found.ray_cluster.found
    assert found.crd.found
    assert found.operators == ()
    assert [one["metadata"]["name"] for one in found.pods.found or ()] == ["lab-head"]


def test_what_may_not_be_seen_is_told_from_what_is_not_there() -> None:
    found = look(FakeKube(forbidden=[NAMESPACE.plural, CRD.plural, DEPLOYMENT.plural]))

    assert found.has_namespace
    assert found.crd.refusal
    assert found.operators is None
    assert found.ray_cluster == there.Seen(None)


def test_a_namespace_that_goes_is_waited_for_by_the_user() -> None:
    condition = {"type": "NamespaceContentRemaining", "status": "True", "message": "Some resources remain: pods."}
    status = {"phase": "Terminating", "conditions": [condition]}

    with pytest.raises(NotReadyError) as error:
        look(FakeKube((NAMESPACE, {"metadata": {"name": "team"}, "status": status})))

    assert error.value.lines() == [
        "namespace team is being removed",
        "  at Some resources remain: pods.",
        "  -> Repeat the command when it is gone: kubectl get namespace team",
    ]
