"""GPUs that are tried before a cluster is made: where, and what it means that a pod saw."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.fake_kube import FakeKube
from trainyard.backends.kuberay.errands import gpu_hosts, trial
from trainyard.backends.kuberay.errands.errand import Outcome
from trainyard.backends.kuberay.errands.gpu_hosts import Trial, Try
from trainyard.backends.kuberay.errands.trial import Judgement, judge
from trainyard.errors import OutsideError, PrerequisiteError, SmokeError
from trainyard.seams.kube.types import NODE, POD, Object
from trainyard.spec.cluster import ClusterSpec

GROUPS = [{"name": "cpu"}, {"name": "one", "gpus": 1}, {"name": "two", "gpus": 2}]


def spec(**more: Any) -> ClusterSpec:
    return ClusterSpec.model_validate({"name": "lab", "backend": "kuberay", "workers": GROUPS, **more})


def node(name: str, gpus: int, *, taint: str = "", ready: bool = True) -> Object:
    taints = [{"key": taint, "effect": "NoSchedule"}] if taint else []
    conditions = [{"type": "Ready", "status": "True" if ready else "Unknown"}]
    allocatable = {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": str(gpus)}
    status = {"allocatable": allocatable, "conditions": conditions}
    return {"metadata": {"name": name, "labels": {}}, "spec": {"taints": taints}, "status": status}


def user(host: str, gpus: int) -> Object:
    container = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    metadata = {"name": f"user-{host}", "namespace": "others"}
    return {
        "metadata": metadata,
        "spec": {"nodeName": host, "containers": [container]},
        "status": {"phase": "Running"},
    }


def test_each_host_is_tried_once_with_the_most_gpus_that_a_node_there_can_have() -> None:
    kube = FakeKube(*[(NODE, one) for one in (node("a", 4), node("b", 1), node("c", 0), node("d", 2))])
    kube.put(POD, user("d", 2))
    kube.put(NODE, node("e", 2, taint="nvidia.com/gpu"))
    kube.put(NODE, node("f", 2, taint="example.com/mine"))
    kube.put(NODE, node("g", 2, ready=False))
    assert gpu_hosts.plan(kube, spec()).tries == (  # type: ignore[arg-type]
        Try("two", 2, "a"),
        Try("one", 1, "b"),
        Try("two", 2, "e"),
    )


@pytest.mark.parametrize("forbidden", ["nodes", ""])
def test_where_hosts_may_not_be_listed_one_of_each_group_is_tried(forbidden: str) -> None:
    kube = FakeKube(forbidden=[forbidden])
    found = gpu_hosts.plan(kube, spec()).tries  # type: ignore[arg-type]
    assert found == (Try("two", 2), Try("one", 1))
    assert found[0].title == "a host of two"


def test_a_cluster_without_gpus_tries_nothing() -> None:
    assert gpu_hosts.groups(spec(workers=[{"name": "cpu"}])) == {}


def said(code: int = 0, **found: Any) -> Outcome:
    return Outcome("a", "a", 1.0, code, json.dumps(found))


RUNTIME, DRIVER, TORCH = trial.RUNTIME, trial.DRIVER, trial.TORCH
WHERE = "a pod with 2 GPUs on a"


@pytest.mark.parametrize(
    "found", [said(gpus=2), said(gpus=2, torch=["2.9.0", "12.8", "2"])], ids=["without torch", "with torch"]
)
def test_all_gpus_are_seen(found: Outcome) -> None:
    assert trial.judged(found, 2, image="mine") is None


@pytest.mark.parametrize(
    ("found", "kind", "lines"),
    [
        (
            said(missing=True),
            PrerequisiteError,
            ["there is no nvidia-smi in a container with GPUs", f"  at {WHERE}", f"  -> {RUNTIME}"],
        ),
        (
            said(error="no driver", gpus=0),
            PrerequisiteError,
            ["nvidia-smi fails in a container: no driver", f"  at {WHERE}", f"  -> {DRIVER}"],
        ),
        (
            said(gpus=1),
            SmokeError,
            ["nvidia-smi lists 1 of 2 GPUs", f"  at {WHERE}", f"  -> {DRIVER}"],
        ),
        (
            said(gpus=2, torch=["2.9.0", "None", "0"]),
            SmokeError,
            ["torch 2.9.0 (for CPU only) sees 0 of 2 GPUs", f"  at {WHERE}", f"  -> {TORCH}"],
        ),
        (
            said(gpus=2, torch=["2.9.0", "12.8", "1"]),
            SmokeError,
            ["torch 2.9.0 (for CUDA 12.8) sees 1 of 2 GPUs", f"  at {WHERE}", f"  -> {TORCH}"],
        ),
        (
            said(gpus=2, torch=["", "", "libcuda.so.1: no such file"]),
            SmokeError,
            [
                "torch of the image cannot be imported: libcuda.so.1: no such file",
                f"  at {WHERE}",
                f"  -> {TORCH}",
            ],
        ),
        (
            Outcome("a", "a", 1.0, 1, "Traceback\nMemoryError"),
            PrerequisiteError,
            [
                "python does not run in image mine",
                f"  at {WHERE}: exit code 1, MemoryError",
                "  -> See what is wrong with it: invoke image.lint",
            ],
        ),
    ],
)
def test_what_a_pod_saw_is_told_with_what_helps(found: Outcome, kind: type[Exception], lines: list[str]) -> None:
    error = trial.judged(found, 2, image="mine")
    assert type(error) is kind
    assert error is not None
    assert error.lines() == lines


def asked(count: int = 1, *, hosts: int = 0, gpus: int = 2, **group: Any) -> Trial:
    """Return where a cluster of so many nodes with GPUs is tried, on hosts `a`, `b`, ..."""
    kube = FakeKube(*[(NODE, node(host, gpus)) for host in "abcdefghij"[:hosts]])
    workers = [{"name": "two", "gpus": 2, "count": count}]
    section = {"groups": {"two": group}} if group else {}
    return gpu_hosts.plan(kube, spec(workers=workers, kuberay=section))  # type: ignore[arg-type]


def outcomes(trial: Trial, *seen: int | None) -> Judgement:
    """Return the judgement when the tries saw so many GPUs each; None has not ended."""
    return judge([None if gpus is None else said(gpus=gpus) for gpus in seen], trial, image="mine")


def test_as_many_hosts_are_tried_as_are_needed_and_two_more() -> None:
    assert [one.host for one in asked(1, hosts=10).tries] == ["a", "b", "c"]
    assert [one.host for one in asked(4, hosts=10).tries] == ["a", "b", "c", "d", "e", "f"]
    assert [one.host for one in asked(4, hosts=10, gpus=4).tries] == ["a", "b", "c", "d"]
    assert [one.host for one in asked(4, hosts=10, gpus=4, spread="required").tries] == ["a", "b", "c", "d", "e", "f"]
    assert [one.host for one in asked(12, hosts=10).tries] == list("abcdefghij")


def test_a_bad_host_that_is_not_needed_is_only_said() -> None:
    trial = asked(1, hosts=10)
    judgement = outcomes(trial, 1, 2, 2)
    assert judgement.refuse(trial) == "not on a, which the cluster can do without: nvidia-smi lists 1 of 2 GPUs"
    assert outcomes(trial, 2, 2, 2).refuse(trial) == ""


def test_nobody_waits_for_hosts_that_are_not_needed() -> None:
    trial = asked(1, hosts=10)
    assert trial.is_enough(outcomes(trial, None, 2, None).good)
    assert not trial.is_enough(outcomes(trial, 1, None, None).good)


def test_hosts_that_nobody_tried_are_no_proof() -> None:
    trial = asked(1, hosts=10)
    with pytest.raises(SmokeError):
        outcomes(trial, 1, 1, 1).refuse(trial)


def test_the_first_error_stands_for_all_and_names_them() -> None:
    trial = asked(3, hosts=3)
    judgement = judge([said(gpus=2), said(gpus=1), Outcome("c", "c", 1.0, error=OutsideError("no"))], trial, image="x")
    with pytest.raises(SmokeError) as caught:
        judgement.refuse(trial)
    assert caught.value.where == f"{WHERE}; and something on c"


def test_where_hosts_may_not_be_seen_each_group_must_be_good() -> None:
    trial = gpu_hosts.plan(FakeKube(forbidden=["nodes"]), spec())  # type: ignore[arg-type]
    with pytest.raises(SmokeError):
        outcomes(trial, 2, 0).refuse(trial)


def test_a_cluster_that_is_made_anew_is_not_tried_on_the_gpus_that_it_holds() -> None:
    kube = FakeKube((NODE, node("a", 2)), (POD, user("a", 2)))
    assert gpu_hosts.plan(kube, spec(), replaces=True).tries == ()  # type: ignore[arg-type]
    assert gpu_hosts.plan(kube, spec()).tries == (Try("two", 2), Try("one", 1))  # type: ignore[arg-type]


def test_the_script_is_python_without_quotes_that_end_it() -> None:
    compile(trial.SCRIPT, "trial", "exec")


def test_what_an_up_that_was_killed_left_behind_takes_no_gpus() -> None:
    left = user("a", 4)
    labels = {"io.trainyard/cluster": "lab", "io.trainyard/errand": "trial"}
    left["metadata"] |= {"namespace": "trainyard", "labels": labels}
    kube = FakeKube((NODE, node("a", 4)), (POD, left))
    assert gpu_hosts.plan(kube, spec()).tries == (Try("two", 2, "a"),)  # type: ignore[arg-type]
    left["metadata"]["labels"]["io.trainyard/cluster"] = "other"
    assert gpu_hosts.plan(kube, spec()).tries == (Try("two", 2), Try("one", 1))  # type: ignore[arg-type]
