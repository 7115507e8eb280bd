"""Schola's own package trains in pods that have images/schola, in a game made for the tests.

TRAINYARD_SCHOLA names the package's directory (Resources/python of Schola 1.0.0); without it there
is nothing to test. The base of the image has Ray and torch, which pip would take long to install.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import standins
from tests.bed import images
from tests.bed.engine import BedEngine
from tests.bed.kubernetes import KubeBed
from tests.large.shipped import dispatched, log
from tests.real import kube as kubernetes
from tests.real.yard import Yard
from trainyard import paths
from trainyard.results.scalars import read_directory

PACKAGE = os.environ.get("TRAINYARD_SCHOLA", "")
pytestmark = pytest.mark.skipif(
    not PACKAGE, reason="TRAINYARD_SCHOLA does not name a directory with Schola's package"
)

SPACE = "schola"
# images/schola under a name of its own: other tests build trainyard/schola on this engine.
NAME = "schola-real"
BUILD = "name: {name}\nbackend: compose\nbuild: {{network: host}}\n"
# The task and a process that plays on the worker; the other process that plays fits on the head
# alone.
NODES: dict[str, Any] = {
    "head": {"cpus": 1, "memory": "3GiB"},
    "workers": [{"name": "cpu", "count": 1, "cpus": 2, "memory": "4GiB"}],
}
COMMAND = (
    "command=[schola-train, '--timesteps={timesteps}', --n-steps=1000, --mini-batch-size=100, "
    "--enable-checkpoints, --save-freq=2, --save-final-policy, --export-onnx, --name-prefix=ppo, "
    "--num-env-runners=2, --launch-unreal, --unreal-path=/opt/unreal/Game.sh, --headless]"
)
SETTINGS = (
    COMMAND,
    "matrix={timesteps: [5000]}",
    "resources={cpus: 1, memory: 1GiB, actors: {cpus: 2}}",
    "node={group: cpu}",
    # Ray prints equal lines of two processes, which differ only in a number, once.
    "env={RAY_DEDUP_LOGS: '0'}",
)
RETURN = "ray/tune/env_runners/episode_return_mean"
# Ray adds the address to a line that comes from another node than the script's.
PLAYS = re.compile(r"\(RolloutWorker pid=\d+(, ip=[\d.]+)?\)\S* a game at port")


@pytest.fixture(scope="module")
def bench(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Yard:
    """Give a place with images/schola, the package and the game in it."""
    home = tmp_path_factory.mktemp("schola")
    made = Yard(home, cluster="builds", environ=engine.environ())
    made.write_cluster(BUILD)
    source = home / "images" / NAME
    shutil.copytree(paths.shipped("images") / "schola", source)
    shutil.copytree(PACKAGE, source / "schola", dirs_exist_ok=True)
    shutil.copytree(standins.HERE / "unreal", source / "unreal", dirs_exist_ok=True)
    file = source / "image.yaml"
    file.write_text(re.sub("TORCH: .*", "TORCH: torch", file.read_text()))
    return made


@pytest.fixture(scope="module")
def image(engine: BedEngine, bench: Yard) -> Iterator[str]:
    """Give the image, and remove it: what builds it again in seconds stays in the engine."""
    images.ensure_schola_base(engine)
    document = bench.json("image.build", NAME, "--base", images.SCHOLA_BASE, seconds=1800)
    yield document["reference"]
    engine.docker("rmi", document["reference"], document["alias"], check=False)


def test_the_image_with_the_package_passes_lint(bench: Yard, image: str) -> None:
    found = bench.json("image.lint", NAME, "--base", images.SCHOLA_BASE, seconds=900)
    assert found["ok"]
    assert {"imports", "runs", "user"} <= {
        check["check"] for check in found["checks"] if not check["skipped"]
    }


@pytest.fixture
def pods(kube: KubeBed, operator: None, image: str, tmp_path: Path) -> Iterator[Yard]:
    """Give a head and a worker in two pods of one host, which unpacks the image once."""
    kube.publish(image)
    lab = kubernetes.yard(kube, tmp_path, "schola")
    where = {"spread": "none", "node_selector": {"kubernetes.io/hostname": kube.hosts[-1].name}}
    kubernetes.write(kube, lab, {**NODES, "kuberay": where}, namespace=SPACE, image=image)
    try:
        lab.run("cluster.up", seconds=1800)
        yield lab
    finally:
        lab.run("cluster.down", "--end-runs", "--purge")


def test_ppo_trains_in_pods_and_its_results_come_home(kube: KubeBed, pods: Yard) -> None:
    for pod in kubernetes.pods(kube, pods.cluster, namespace=SPACE).values():
        user = kube.kubectl("exec", "-n", SPACE, pod["metadata"]["name"], "--", "id", "-un")
        assert user.stdout == "ray\n"

    run = dispatched(pods, "schola", *SETTINGS)
    played = PLAYS.findall(log(run))
    # One on the task's own node, one on the other.
    assert sorted(map(bool, played)) == [False, True], log(run)
    assert "Training complete" in log(run)

    assert list(run.glob("**/checkpoint_*/algorithm_state.pkl"))
    assert list(run.glob("**/events.out.tfevents.*"))
    assert list(run.glob("**/*.onnx"))
    returns = returns_of(run)
    assert returns[0] + 0.5 < returns[-1], returns


def returns_of(run: Path) -> list[float]:
    """Return the mean return of each iteration."""
    (found,) = [
        curves[RETURN]
        for task in run.glob("outputs/*")
        for curves in read_directory(task, points=100, tags=1000).values()
        if RETURN in curves
    ]
    return [value for _, value, _ in found.points()]
