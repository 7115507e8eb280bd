"""What the runner is told, and jobs that a cluster can never run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainyard.dispatch import plan
from trainyard.dispatch.package import listing, pack
from trainyard.dispatch.prepare import check_fits
from trainyard.endpoint import Endpoint, ExpectedNode
from trainyard.errors import RequestError
from trainyard.spec.cluster import ClusterSpec, Head, WorkerGroup
from trainyard.spec.expand import expand
from trainyard.spec.job import JobSpec, Placement, Resources, RuntimeEnv

CLUSTER = ClusterSpec(
    name="lab",
    backend="local",
    head=Head(cpus=1),
    workers=(
        WorkerGroup(name="gpu", count=2, cpus=4, gpus=2),
        WorkerGroup(name="burst", min=0, max=3, cpus=16),
    ),
)


def job(**fields: object) -> JobSpec:
    return JobSpec.model_validate({"name": "job", "command": ["true"], **fields})


@pytest.mark.parametrize(
    "fitting",
    [
        job(),
        job(resources=Resources(cpus=4, gpus=2)),
        job(node=Placement(name="gpu-1")),
        job(node=Placement(name="burst-2")),
        job(node=Placement(group="burst"), resources=Resources(cpus=16)),
    ],
)
def test_a_job_fits_if_one_node_could_ever_run_each_task(fitting: JobSpec) -> None:
    check_fits(CLUSTER, fitting, expand(fitting))


@pytest.mark.parametrize(
    ("misfit", "problem"),
    [
        (
            job(resources=Resources(gpus=3)),
            "resources: a task needs 1 CPU, 3 GPU, but no node has that much "
            "(burst: 16 CPU, 0 GPU; gpu: 4 CPU, 2 GPU; head: 1 CPU, 0 GPU)",
        ),
        (
            job(node=Placement(name="gpu-2")),
            "node.name: no node is called 'gpu-2'; did you mean 'gpu-1'? "
            "(there are: head, gpu-0, gpu-1, burst-0, burst-1, burst-2)",
        ),
        (
            job(node=Placement(group="gpus"), matrix={"seed": (0, 1)}, env={"SEED": "{seed}"}),
            "node.group: no group is called 'gpus'; did you mean 'gpu'? (there are: burst, gpu, head)",
        ),
    ],
)
def test_a_job_that_can_never_run_is_refused(misfit: JobSpec, problem: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_fits(CLUSTER, misfit, expand(misfit))
    assert [str(one) for one in caught.value.problems] == [problem]


ON_KUBERNETES = CLUSTER.model_copy(update={"backend": "kuberay"})


def test_on_kubernetes_a_node_may_have_any_name_of_its_group_and_no_other() -> None:
    for name in ("head", "gpu-x7k2p", "burst-0"):
        placed = job(node=Placement(name=name))
        check_fits(ON_KUBERNETES, placed, expand(placed))
    misfit = job(node=Placement(name="x7k2p"))
    with pytest.raises(RequestError) as caught:
        check_fits(ON_KUBERNETES, misfit, expand(misfit))
    assert str(caught.value.problems[0]).startswith("node.name: no node is called 'x7k2p' (there are: head, gpu-0,")


def test_nothing_is_said_about_a_cluster_that_somebody_else_runs() -> None:
    existing = ClusterSpec.model_validate(
        {"name": "x", "backend": "existing", "existing": {"address": "http://127.0.0.1:1", "token_env": "T"}}
    )
    huge = job(resources=Resources(gpus=64))
    check_fits(existing, huge, expand(huge))


def test_the_plan_tells_the_runner_everything(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_text("w")
    packed = pack(listing(tmp_path))
    spec = job(
        matrix={"seed": (0, 1)},
        env={"SEED": "{seed}"},
        runtime_env=RuntimeEnv(wheels=("dist/a.whl",), uv=("gymnasium",)),
    )
    endpoint = Endpoint(
        "lab", "http://127.0.0.1:1", "secret", simulated_gpus=True, expected=(ExpectedNode("head", "head", 1),)
    )
    document = json.loads(
        plan.build("run-1", endpoint, job=spec, tasks=expand(spec), package=packed, wheels=packed, skip_gate=True)
    )
    assert b"secret" not in json.dumps(document).encode()
    assert (document["run"], document["job"], document["cluster"]) == ("run-1", "job", "lab")
    assert (document["package"], document["package_parts"]) == (packed.name, list(packed.parts))
    assert document["runtime_env"] == {
        "uv": ["${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}/a.whl", "gymnasium"],
        "working_dir": f"gcs://{packed.parts[0]}",
    }
    assert [task["name"] for task in document["tasks"]] == ["seed=0", "seed=1"]
    assert document["gate"]["skip"] is True
    head = {"name": "head", "group": "head", "cpus": 1, "gpus": 0, "memory": None, "optional": False}
    assert document["gate"]["nodes"] == [head]


def test_a_smoke_test_is_a_plan_without_tasks() -> None:
    document = json.loads(plan.build("run-1", Endpoint("lab", "http://127.0.0.1:1")))
    assert (document["tasks"], document["package"], document["gate"]["skip"]) == ([], None, False)
