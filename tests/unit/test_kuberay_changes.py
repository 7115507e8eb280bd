"""Differences between a RayCluster and its file: two documents in, words out."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from trainyard.backends.kuberay import ray_cluster
from trainyard.backends.kuberay.manifest import documents
from trainyard.backends.kuberay.manifest.pod import Inputs
from trainyard.seams.kube.types import Object
from trainyard.spec.cluster import ClusterSpec

GPU = {"name": "gpu", "count": 2, "cpus": 2, "memory": "4GiB", "gpus": 1}
BURST = {"name": "burst", "min": 1, "max": 3, "idle_timeout": "5m"}
LAB: dict[str, Any] = {"head": {"cpus": 1}, "workers": [GPU], "env": {"MODE": "fast"}}
GROWING: dict[str, Any] = {"workers": [BURST]}


def sent(*, image: str = "r/a@sha256:0", secrets: tuple[str, ...] = (), **file: Any) -> Object:
    spec = ClusterSpec.model_validate({"name": "lab", "backend": "kuberay", **file}, context={})
    inputs = Inputs(spec, spec.kuberay, image, pull_secrets=secrets)
    return documents(inputs).ray_cluster


def stored(ray_cluster: Object, **replicas: int) -> Object:
    """Return the API server's version: with the CRD's defaults and the autoscaler's writes."""
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
    return [
        (change.text, change.applied) for change in ray_cluster.changes(stored(old), stored(new))
    ]


def ignored(*texts: str) -> list[tuple[str, bool]]:
    return [(text, False) for text in texts]


@pytest.mark.parametrize("file", [{}, LAB, GROWING])
def test_values_set_by_the_api_server_or_autoscaler_are_no_difference(
    file: dict[str, Any],
) -> None:
    assert ray_cluster.changes(stored(sent(**file), burst=2), stored(sent(**file))) == ()


def test_sizes_of_groups_are_carried_out() -> None:
    more = {**LAB, "workers": [{**GPU, "count": 3}]}
    assert said(sent(**LAB), sent(**more)) == [("workers.gpu.count: 2 now, 3 desired", True)]
    other: dict[str, Any] = {"workers": [{**BURST, "min": 0, "max": 5, "idle_timeout": "90s"}]}
    assert sorted(said(sent(**GROWING), sent(**other))) == [
        ("workers.burst.count: 1 to 3 now, 0 to 5 desired", True),
        ("workers.burst.idle_timeout: 300 now, 90 desired", True),
    ]
    live = stored(sent(**LAB))
    live["spec"]["workerGroupSpecs"][0]["replicas"] = 1
    assert [change.text for change in ray_cluster.changes(live, stored(sent(**LAB)))] == [
        "workers.gpu.count: 1 now, 2 desired"
    ]


def test_a_fixed_group_that_was_changed_by_kubectl_is_said_in_one_sentence() -> None:
    live = stored(sent(**LAB))
    live["spec"]["workerGroupSpecs"][0] |= {"replicas": 3, "minReplicas": 1, "maxReplicas": 3}
    (change,) = ray_cluster.changes(live, stored(sent(**LAB)))
    assert (change.text, change.applied, change.ends_nodes) == (
        "workers.gpu.count: 1 to 3 now, 2 desired",
        True,
        True,
    )


@pytest.mark.parametrize(
    ("before", "after", "ends"),
    [
        ({"count": 1}, {"count": 2}, False),
        ({"count": 2}, {"count": 1}, True),
        ({"min": 0, "max": 3}, {"min": 1, "max": 4}, False),
        ({"min": 0, "max": 3}, {"min": 0, "max": 2}, True),
    ],
)
def test_only_a_group_that_gets_smaller_ends_nodes(
    before: dict[str, int], after: dict[str, int], ends: bool
) -> None:
    old, new = (sent(workers=[{"name": "gpu", **size}]) for size in (before, after))
    assert (
        any(change.ends_nodes for change in ray_cluster.changes(stored(old), stored(new))) == ends
    )


def test_a_changed_key_of_a_node_is_reported_without_derived_values() -> None:
    other = {**GPU, "cpus": 4, "memory": "8GiB", "gpus": 2}
    assert said(sent(**LAB), sent(**{**LAB, "workers": [other]})) == ignored(
        "workers.gpu.memory: 4GiB now, 8GiB desired",
        "workers.gpu.cpus: 2 now, 4 desired",
        "workers.gpu.gpus: 1 now, 2 desired",
    )
    assert said(sent(**LAB, kuberay={"simulated_gpus": True}), sent(**LAB)) == ignored(
        "kuberay.simulated_gpus: true now, false desired"
    )


def test_a_difference_common_to_all_groups_is_reported_once() -> None:
    kuberay = {"node_selector": {"pool": "a"}, "storage": {"claim": "mine"}, "shm_size": "1GiB"}
    found = said(sent(**LAB), sent(**LAB, kuberay=kuberay, image="r/b@sha256:1", secrets=("mine",)))
    assert sorted(found) == ignored(
        "env.TRAINYARD_CHECKPOINT_STORAGE differs",
        "image: r/a@sha256:0 now, r/b@sha256:1 desired",
        "object-store-memory differs",
        "the pods' imagePullSecrets differs",
        "the pods' nodeSelector differs",
        "the pods' volumes differs",
    )


def test_values_of_variables_are_not_shown() -> None:
    other = {**LAB, "env": {"MODE": "hunter2", "NEW": "hunter2"}}
    assert said(sent(**LAB), sent(**other)) == ignored("env.MODE differs", "env.NEW differs")


def test_autoscaler_decisions_are_kept_within_the_new_bounds() -> None:
    live = stored(sent(**GROWING), burst=2)
    group = ray_cluster.carried(sent(**GROWING), live)["spec"]["workerGroupSpecs"][0]
    assert (group["replicas"], group["scaleStrategy"]) == (
        2,
        {"workersToDelete": ["lab-burst-worker-abcde"]},
    )
    smaller = sent(workers=[{**BURST, "min": 0, "max": 1}])
    assert ray_cluster.carried(smaller, live)["spec"]["workerGroupSpecs"][0]["replicas"] == 1
    assert ray_cluster.carried(sent(**GROWING), stored(sent(**LAB))) == sent(**GROWING)
