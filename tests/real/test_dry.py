"""`--dry` changes nothing anywhere: each command is tried while a run is active."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.real.jobs import new_mark, newest, running, write_job
from tests.real.yard import Yard, wait_until
from trainyard.seams.ray_api import RayApi
from trainyard.tasks import namespace

pytestmark = pytest.mark.core

# A command's required arguments. FLAGS, below, let a command change the most, or not wait.
VALUES = {
    "job_dir": "sleeping",
    "node": "head",
    "port": "6006",
    "sizes": "gpu=1",
    "source": "tasks.yaml",
}
OTHER_VALUES = {
    "tune.dispatch": {"job_dir": "sweep"},
    "cluster.import": {"source": "cluster_config"},
}
SWEEP = "command: [echo, '{x}']\ntune: {space: {x: {choice: [1, 2]}}, metric: m, samples: 2}\n"
# Refused here: local nodes have no shell, there is no sweep, and no ended run to resume.
REFUSED = (
    "cluster.shell",
    "cluster.forward",
    "train.resume",
    "tune.status",
    "tune.stop",
    "tune.resume",
)
FLAGS = {
    "recreate": "--recreate",
    "end_runs": "--end-runs",
    "all": "--all",
    "follow": "--no-follow",
}
DAEMONS = ("raylet", "gcs_server", "trainyard")


@dataclass(frozen=True)
class World:
    """All that a command could change: processes, files, and the cluster's jobs and nodes."""

    processes: frozenset[int]
    files: frozenset[tuple[str, int, int, int]]
    jobs: frozenset[tuple[str, str]]
    nodes: frozenset[tuple[str, bool]]


@pytest.fixture
def mark() -> str:
    """Give the argument by which the run's process is found."""
    return new_mark()


@pytest.fixture
def sleeping(yard: Yard, mark: str) -> Iterator[Path]:
    """Give the directory of an active run of which this machine has recorded only a part."""
    write_job(yard, "sleeping", f"command: [sleep, '{mark}']\noutputs: [out/]\n")
    yard.run("train.dispatch", "sleeping", "--no-wait", "--skip-smoke")
    wait_until(lambda: bool(running(mark)), seconds=120, what="the task runs")
    yield newest(yard)
    yard.run("train.stop", newest(yard).name)


def test_no_command_changes_anything_with_dry(
    yard: Yard, sleeping: Path, mark: str, tmp_path: Path
) -> None:
    careful = Yard(
        yard.home, environ={"HOME": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/no-docker"}
    )
    write_job(yard, "sweep", SWEEP)
    (yard.home / "tasks.yaml").write_text("tasks: [{name: a, py_args: train.py}]\n")
    (yard.home / "cluster_config").write_text("name: lab address: http://127.0.0.1:8265\n")
    before = world(yard, tmp_path, mark)

    def said_by(name: str) -> str:
        command = careful.run("--dry", *words(name), expect=None)
        # Without Docker, a command that asks it first exits with 3.
        allowed = (0, 3) if name.startswith(("image.", "registry.")) else (2 * (name in REFUSED),)
        assert command.returncode in allowed, (
            f"{name} exited {command.returncode}\n{command.stderr}"
        )
        return command.stdout

    with ThreadPoolExecutor(2) as pool:
        said = dict(zip(namespace.task_names, pool.map(said_by, namespace.task_names), strict=True))

    assert said["train.stop"].startswith("would: Stop a run")
    assert f"(run {sleeping.name})" in said["train.stop"]
    assert f"ends {sleeping.name}: job sleeping" in said["cluster.down"]
    assert f"run {sleeping.name} running" in said["train.status"]
    assert world(yard, tmp_path, mark) == before


def words(name: str) -> list[str]:
    """Return a task's command line with required arguments, and flags to change the most."""
    arguments = {one.attr_name or one.name: one for one in namespace[name].get_arguments()}
    needed = [
        key
        for key, one in arguments.items()
        if one.positional and (one.default is None or key in VALUES)
    ]
    values = {**VALUES, **OTHER_VALUES.get(name, {})}
    flags = [FLAGS[key] for key, one in arguments.items() if key in FLAGS and one.kind is bool]
    return [name, *(values.get(key, "x") for key in needed), *flags]


def world(yard: Yard, home: Path, mark: str) -> World:
    """Return the present processes, files, jobs and nodes."""
    with RayApi(yard.address(), yard.token()) as ray:
        jobs = frozenset((job.submission_id, job.status) for job in ray.jobs())
        nodes = frozenset((node.node_id, node.alive) for node in ray.nodes())
    daemons = {one.pid for one in yard.processes() if one.info["name"].startswith(DAEMONS)}
    paths = [path for directory in (yard.home, home) for path in directory.rglob("*")]
    files = frozenset(_status(path) for path in paths if path.suffix != ".log")
    return World(frozenset(daemons | set(running(mark))), files, jobs, nodes)


def _status(path: Path) -> tuple[str, int, int, int]:
    found = path.lstat()
    return str(path), found.st_mode, found.st_size, found.st_mtime_ns
