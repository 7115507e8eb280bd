"""In what a RayCluster differs from its file: two documents in, words out."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from trainyard.backends.kuberay.documents import change
from trainyard.backends.kuberay.documents.document import Wish, documents, shipped_templates
from trainyard.seams.kube.types import Object
from trainyard.spec import ClusterSpec

TEMPLATES = shipped_templates()
GPU = {"name": "gpu", "count": 2, "cpus": 2, "memory": "4GiB", "gpus": 1}
BURST = {"name": "burst", "min": 1, "max": 3, "idle_timeout": "5m"}
LAB: dict[str, Any] = {"head": {"cpus": 1}, "workers": [GPU], "env": {"MODE": "fast"}}
GROWING: dict[str, Any] = {"workers": [BURST]}


def sent(*, image: str = "reg:5000/a@sha256:0", simulated: bool = False, **fields: Any) -> Object:
    spec = ClusterSpec.model_validate({"name": "lab", "backend": "kuberay", **fields}, context={})
    return documents(Wish(spec, image, simulated=simulated), TEMPLATES).ray_cluster


def documents_of(kuberay: dict[str, Any], *, image: str, pull_secrets: tuple[str, ...]) -> Object:
    spec = ClusterSpec.model_validate({"name": "lab", "backend": "kuberay", **LAB, "kuberay": kuberay}, context={})
    return documents(Wish(spec, image, pull_secrets=pull_secrets), TEMPLATES).ray_cluster


def stored(ray_cluster: Object, **replicas: int) -> Object:
    """Return what the API server makes of it: its own fields, the CRD's defaults, what the autoscaler wrote."""
    found = deepcopy(ray_cluster)
    found["metadata"] |= {"uid": "u", "resourceVersion": "7", "generation": 2, "managedFields": []}
    found["status"] = {"state": "ready"}
    for group in found["spec"].get("workerGroupSpecs", []):
        group.setdefault("replicas", replicas.get(group["groupName"], 0))
        group.setdefault("numOfHosts", 1)
        if group["groupName"] in replicas:
            group["scaleStrategy"] = {"workersToDelete": ["lab-burst-worker-abcde"]}
    return found


def said(old: Object, new: Object) -> list[tuple[str, bool]]:
    return [(str(one), one.applied) for one in change.differences(stored(old), stored(new))]


def only(*texts: str, applied: bool = False) -> list[tuple[str, bool]]:
    return [(text, applied) for text in texts]


@pytest.mark.parametrize("fields", [{}, LAB, GROWING])
def test_what_the_api_server_and_the_autoscaler_fill_in_is_no_difference(fields: dict[str, Any]) -> None:
    live, dry_run = stored(sent(**fields), burst=2), stored(sent(**fields))
    assert change.differences(live, dry_run) == ()


def test_sizes_of_groups_are_carried_out() -> None:
    more = {**LAB, "workers": [{**GPU, "count": 3}]}
    assert said(sent(**LAB), sent(**more)) == only("workers.gpu.count: 2 now, 3 wanted", applied=True)
    other: dict[str, Any] = {"workers": [{**BURST, "min": 0, "max": 5, "idle_timeout": "90s"}]}
    assert said(sent(**GROWING), sent(**other)) == only(
        "workers.burst.min: 1 now, 0 wanted",
        "workers.burst.max: 3 now, 5 wanted",
        "workers.burst.idle_timeout: 5m now, 90s wanted",
        applied=True,
    )


def test_a_count_that_somebody_else_changed_is_put_right() -> None:
    live = stored(sent(**LAB))
    live["spec"]["workerGroupSpecs"][0]["replicas"] = 1
    assert [str(one) for one in change.differences(live, stored(sent(**LAB)))] == ["workers.gpu.count: 1 now, 2 wanted"]


def test_a_new_group_is_carried_out_and_the_pods_of_a_removed_one_stay() -> None:
    renamed = {**LAB, "workers": [{**GPU, "name": "big"}]}
    assert said(sent(**LAB), sent(**renamed)) == [("workers.big is new", True), ("workers.gpu is gone", False)]
    assert [one.group for one in change.differences(stored(sent(**LAB)), stored(sent(**renamed)))] == ["big", "gpu"]


def test_the_first_group_that_grows_needs_another_head() -> None:
    both = {**LAB, "workers": [GPU, BURST]}
    assert said(sent(**LAB), sent(**both)) == [
        ("workers: a group that grows needs an autoscaler, and the head has none", False),
        ("workers.burst is new", True),
    ]
    assert said(sent(**both), sent(**LAB)) == only(
        "workers: no group grows any more, and the head still has an autoscaler", "workers.burst is gone"
    )


def test_what_a_node_has_is_said_in_the_file_s_words() -> None:
    other = {**GPU, "cpus": 4, "memory": "8GiB", "gpus": 2}
    assert said(sent(**LAB), sent(**{**LAB, "workers": [other]})) == only(
        "workers.gpu.cpus: 2 now, 4 wanted",
        "workers.gpu.memory: 4GiB now, 8GiB wanted",
        "workers.gpu.gpus: 1 now, 2 wanted",
    )
    assert said(sent(**LAB), sent(**{**LAB, "head": {"cpus": 0, "gpus": 1}})) == only(
        "head.cpus: 1 now, 0 wanted", "head.gpus: 0 now, 1 wanted"
    )


def test_what_all_groups_have_otherwise_is_said_once() -> None:
    kuberay = {
        "spread": "required",
        "node_selector": {"pool": "a"},
        "tolerations": [{"key": "x"}],
        "priority_class": "high",
        "outputs": "/out",
        "storage": {"claim": "mine"},
        "service_account": "trainer",
        "security": {"run_as_user": 1000},
        "requests": {"cpus": 0.5},
        "labels": {"team": "a"},
        "annotations": {"owner": "b"},
        "volumes": [{"target": "/d", "claim": "d"}],
        "shm_size": "1GiB",
    }
    found = said(sent(**LAB), documents_of(kuberay, image="reg:5000/b@sha256:1", pull_secrets=("mine",)))
    assert found == only(
        "image: reg:5000/a@sha256:0 now, reg:5000/b@sha256:1 wanted",
        "kuberay.shm_size is another",
        "kuberay.requests is another",
        "kuberay.node_selector is another",
        "kuberay.tolerations is another",
        "kuberay.spread: preferred now, required wanted",
        "kuberay.priority_class: none now, high wanted",
        "kuberay.outputs: /outputs now, /out wanted",
        "kuberay.storage: none now, mine wanted",
        "kuberay.security is another",
        "kuberay.service_account: none now, trainer wanted",
        "kuberay.pull_secrets is another",
        "kuberay.labels.team is new",
        "kuberay.annotations.owner is new",
        "kuberay.volumes at /d is new",
    )


def test_values_of_variables_are_not_shown() -> None:
    other = {**LAB, "env": {"MODE": "hunter2", "NEW": "hunter2"}}
    assert said(sent(**LAB), sent(**other)) == only("env.MODE is another", "env.NEW is new")
    assert said(sent(**other), sent(**{**LAB, "env": {"NEW": "hunter2"}})) == only("env.MODE is gone")


def test_what_one_group_has_otherwise_names_it() -> None:
    placed = {"groups": {"gpu": {"node_selector": {"pool": "a"}, "spread": "none", "runtime_class": "nvidia"}}}
    assert said(sent(**LAB), sent(**LAB, kuberay=placed)) == only(
        "kuberay.groups.gpu.node_selector is another",
        "kuberay.groups.gpu.spread: preferred now, none wanted",
        "kuberay.groups.gpu.runtime_class: none now, nvidia wanted",
    )


def test_gpus_that_become_real_are_one_difference() -> None:
    assert said(sent(**LAB, simulated=True), sent(**LAB)) == only("kuberay.simulated_gpus: true now, false wanted")


def test_gpus_of_another_name() -> None:
    assert said(sent(**LAB), sent(**LAB, kuberay={"gpu_resource": "amd.com/gpu"})) == only(
        "kuberay.gpu_resource: nvidia.com/gpu now, amd.com/gpu wanted"
    )


def test_what_trainyard_sets_itself_is_a_difference_too() -> None:
    other = sent(**LAB)
    other["spec"]["headGroupSpec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 99
    text = "something that Trainyard sets itself: it was made by another version"
    assert said(other, sent(**LAB)) == only(text)
    more = {**LAB, "workers": [{**GPU, "count": 3}]}
    assert said(other, sent(**more)) == [("workers.gpu.count: 2 now, 3 wanted", True), (text, False)]


def test_what_the_autoscaler_decided_goes_along() -> None:
    live = stored(sent(**GROWING), burst=2)
    group = change.carried(sent(**GROWING), live)["spec"]["workerGroupSpecs"][0]
    assert (group["replicas"], group["scaleStrategy"]) == (2, {"workersToDelete": ["lab-burst-worker-abcde"]})
    smaller = sent(workers=[{**BURST, "min": 0, "max": 1}])
    assert change.carried(smaller, live)["spec"]["workerGroupSpecs"][0]["replicas"] == 1


def test_a_group_of_a_fixed_size_and_a_new_one_go_as_they_are() -> None:
    assert change.carried(sent(**LAB), stored(sent(**LAB))) == sent(**LAB)
    assert change.carried(sent(**GROWING), stored(sent(**LAB))) == sent(**GROWING)
    assert change.carried(sent(), stored(sent(**LAB))) == sent()


def claim(**spec: Any) -> Object:
    whole = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "5Gi"}}, **spec}
    return {"metadata": {"name": "lab-outputs"}, "spec": whole}


def test_a_claim_can_only_grow() -> None:
    there = claim(storageClassName="nfs", volumeName="pv-1")
    larger = claim(resources={"requests": {"storage": "10Gi"}}, storageClassName="nfs")
    other = claim(accessModes=["ReadWriteOnce"], storageClassName="local")
    assert change.claim_differences(there, claim()) == ()
    assert [(str(one), one.applied) for one in change.claim_differences(there, larger)] == [
        ("kuberay.storage.size: 5GiB now, 10GiB wanted", True)
    ]
    assert [(str(one), one.applied) for one in change.claim_differences(larger, there)] == [
        ("kuberay.storage.size: 10GiB now, 5GiB wanted", False)
    ]
    assert [str(one) for one in change.claim_differences(there, other)] == [
        "kuberay.storage.access: ReadWriteMany now, ReadWriteOnce wanted",
        "kuberay.storage.storage_class: nfs now, local wanted",
    ]
