"""Messages before a job is sent, and the plan that the runner gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trainyard_runner.wire.plan import ExpectedNode, read

from trainyard.dispatch import plan
from trainyard.dispatch.package import Packages, listing, pack
from trainyard.dispatch.wheels import WHEELS, copied
from trainyard.endpoint import Endpoint
from trainyard.errors import RequestError
from trainyard.spec.cluster import ClusterSpec, LoadedCluster
from trainyard.spec.job import JobSpec, RuntimeEnv

CLUSTER = LoadedCluster(ClusterSpec(name="lab", backend="local"), Path("clusters/lab.yaml"))


def job(**fields: object) -> JobSpec:
    return JobSpec.model_validate({"name": "job", "command": ["true"], **fields})


def test_files_to_send_and_left_out_are_reported_beforehand(tmp_path: Path) -> None:
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
        "lab",
        "http://127.0.0.1:1",
        "secret",
        simulated_gpus=True,
        expected=(ExpectedNode("head", "head", 1),),
    )

    prepared = plan.prepare(CLUSTER, spec, tmp_path)
    packages = Packages(packed, prepared.wheels, packed)
    text = plan.build("run-1", endpoint, prepared, packages, skip_gate=True)
    document = json.loads(text)
    there = read(text)
    assert (there.run, there.gate.nodes, there.package_parts) == (
        "run-1",
        endpoint.expected,
        packed.parts,
    )
    assert [task.env for task in there.tasks] == [{"SEED": "0"}, {"SEED": "1"}]

    assert b"secret" not in json.dumps(document).encode()
    assert (document["run"], document["job"], document["cluster"]) == ("run-1", "job", "lab")
    assert (document["package"], document["package_parts"]) == (packed.name, list(packed.parts))
    assert document["runtime_env"] == {
        "uv": ["${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}/a.whl", "gymnasium"],
        "working_dir": f"gcs://{packed.parts[0]}",
    }
    assert [task["name"] for task in document["tasks"]] == ["seed=0", "seed=1"]
    assert document["gate"]["skip"] is True

    head = {
        "name": "head",
        "group": "head",
        "cpus": 1,
        "gpus": 0,
        "memory": None,
        "optional": False,
    }

    assert document["gate"]["nodes"] == [head | {"resources": {}}]


def test_wheels_are_sent_and_packages_are_named_as_to_be_built(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_text("w")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "pyproject.toml").write_text("")
    env = RuntimeEnv(wheels=("package",), uv=(f"{WHEELS}a.whl", "numpy"))
    prepared = plan.prepare(CLUSTER, job(runtime_env=env), tmp_path)
    assert prepared.wheels == (tmp_path / "package", tmp_path / "a.whl")
    assert list(plan.described(prepared))[2] == "sends 2 wheels, built here: package"
    packages = Packages(pack(prepared.files), (tmp_path / "a.whl",))
    document = json.loads(plan.build("run-1", Endpoint("lab", ""), prepared, packages))
    assert document["runtime_env"] == {"uv": [f"{WHEELS}a.whl", "numpy"]}


def test_a_package_is_copied_without_its_ignored_files(tmp_path: Path) -> None:
    package = tmp_path / "package"
    for name in (".git/HEAD", ".venv/big", "data/x.log", "src/a.py", "pyproject.toml"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(name)
    (package / ".gitignore").write_text("*.log\n")
    (package / "pyproject.toml").write_text("[project]\nname = 'mine'\nversion = '1.0'\n")
    copy = copied(package, tmp_path / "copy")
    found = [
        path.relative_to(copy).as_posix() for path in sorted(copy.rglob("*")) if path.is_file()
    ]
    assert (copy.name, found) == ("package", [".gitignore", "pyproject.toml", "src/a.py"])


def test_a_link_among_more_files_is_sent_under_its_own_name(tmp_path: Path) -> None:
    for name in ("job/train.py", "shared/ckpt_0100.pt", "shared/data/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "shared" / "latest.pt").symlink_to("ckpt_0100.pt")
    (tmp_path / "job" / "ignored").symlink_to("../shared/data")
    (tmp_path / "job" / ".gitignore").write_text("ignored\n")
    (tmp_path / "door").symlink_to("job")
    names = ("../shared/latest.pt", "ignored", "../shared/data/..", str(tmp_path / "door/train.py"))
    env = RuntimeEnv(files=names)
    prepared = plan.prepare(CLUSTER, job(runtime_env=env), tmp_path / "job")
    assert [file.name for file in prepared.files.files] == [
        ".gitignore",
        "ignored/x",
        "latest.pt",
        "shared/ckpt_0100.pt",
        "shared/data/x",
        "shared/latest.pt",
        "train.py",
    ]


def test_a_bad_wheel_or_package_is_named_with_every_other_problem(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    env = RuntimeEnv(wheels=("empty", "b.whl"), pip=(f"{WHEELS}c.whl",), files=("nosuch",))
    with pytest.raises(RequestError) as error:
        plan.prepare(CLUSTER, job(runtime_env=env, command=("schola-rllib",)), tmp_path)
    assert [str(problem).partition(" when")[0] for problem in error.value.problems] == [
        "command of task job: Schola's interactive entry point waits for a key press",
        "runtime_env.files.0: no such file or directory: nosuch",
        "runtime_env.wheels.0: no pyproject.toml in empty",
        "runtime_env.wheels.1: no such wheel file: b.whl",
        "runtime_env.pip: no such wheel file: c.whl",
    ]


def test_a_smoke_test_is_a_plan_without_tasks() -> None:
    text = plan.build("run-1", Endpoint("lab", "http://127.0.0.1:1"))
    document = json.loads(text)
    assert read(text).tasks == ()
    assert (document["tasks"], document["package"], document["gate"]["skip"]) == ([], None, False)
