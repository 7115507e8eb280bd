"""What is said before a job is sent, and what the runner is told."""

from __future__ import annotations

import json
from pathlib import Path

from trainyard.dispatch import plan
from trainyard.dispatch.package import listing, pack
from trainyard.endpoint import Endpoint, ExpectedNode
from trainyard.spec.cluster import ClusterSpec, LoadedCluster
from trainyard.spec.job import JobSpec, RuntimeEnv

CLUSTER = LoadedCluster(ClusterSpec(name="lab", backend="local"), Path("clusters/lab.yaml"))


def job(**fields: object) -> JobSpec:
    return JobSpec.model_validate({"name": "job", "command": ["true"], **fields})


def test_what_is_sent_and_left_out_is_said_before(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x" * 2048)
    (tmp_path / ".gitignore").write_text("*.log\n")
    for number in range(8):
        (tmp_path / f"{number}.log").write_text("")
    with (tmp_path / "weights.bin").open("wb") as sparse:
        sparse.truncate(30 * 1024 * 1024)
    assert list(plan.described(plan.prepare(CLUSTER, job(), tmp_path))) == [
        "job job on cluster lab: 1 task",
        "sends 3 files, 30.0 MiB",
        "left out: 0.log (.gitignore), 1.log (.gitignore), 2.log (.gitignore), 3.log (.gitignore), "
        "4.log (.gitignore), 5.log (.gitignore) and 2 more",
    ]


def test_the_plan_tells_the_runner_everything(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "a.whl").write_text("w")
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
        plan.build(
            "run-1",
            endpoint,
            plan.prepare(CLUSTER, spec, tmp_path),
            package=packed,
            wheels=packed,
            skip_gate=True,
        )
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
