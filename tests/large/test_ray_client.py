"""`ray` in a block whose nodes share no disk: programs use Ray Client to their end, or to Ctrl-C.

The program has torch, as a user's program does that uses Ray Train; the nodes have images/torch.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bed import images
from tests.bed.engine import BedEngine
from tests.real.containers import left_of
from tests.real.test_python import run
from tests.real.yard import Yard, wait_until

CONTAINERS = """
name: {{name}}
backend: compose
image: {image}
head: {{{{cpus: 1, memory: 3GiB}}}}
"""
# Packages that `import ray.train.torch` and `import ray.tune` need in a program's Python.
PACKAGES = ("torch", "pandas", "pyarrow", "fsspec", "tensorboardX", "pydantic")
BLOCK = """
from trainyard.sematic import RayCluster, RayNodeConfig, SimpleRayCluster

config = SimpleRayCluster(n_nodes=2, node_config=RayNodeConfig(cpu=2, memory_gb=3))
block = RayCluster(config=config, name="yard")
"""
TRAINS = f"""
import ray.train
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
{BLOCK}
def train():
    import torch

    workers = torch.ones(1)
    torch.distributed.all_reduce(workers)
    if ray.train.get_context().get_world_rank() == 0:
        print("trained by", workers.item(), "workers", flush=True)

with block:
    scaling = ScalingConfig(num_workers=3)
    trained = TorchTrainer(train, scaling_config=scaling, run_config=RunConfig(storage_path="/tmp/results")).fit()
    assert trained.error is None
"""
SEARCHES = f"""
from ray import tune
{BLOCK}
def trial(config):
    tune.report({{"loss": config["x"]}})

with block:
    searched = tune.Tuner(
        trial, param_space={{"x": tune.grid_search([3, 1, 2])}}, run_config=tune.RunConfig(storage_path="/tmp/results")
    ).fit()
    print("the best is", searched.get_best_result("loss", "min").config)
"""
WAITS = f"""
import time
import ray
{BLOCK}
@ray.remote
def long():
    time.sleep(600)

with block:
    waiting = [long.remote() for _ in range(2)]
    print("it waits", flush=True)
    ray.get(waiting)
"""


@pytest.fixture
def lab(engine: BedEngine, fresh: Yard) -> Yard:
    """Give a directory whose cluster file names containers with images/torch."""
    images.ensure_torch(engine)
    fresh.environ.update(engine.environ())
    fresh.write_cluster(CONTAINERS.format(image=images.TORCH))
    return fresh


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a directory with the index's newest torch, as in images/torch: 6 GB."""
    directory = tmp_path_factory.mktemp("packages")
    uv = Path(sys.executable).with_name("uv")
    install = [
        str(uv),
        "pip",
        "install",
        "--quiet",
        "--python",
        sys.executable,
        "--target",
        str(directory),
    ]

    subprocess.run([*install, *PACKAGES], check=True, timeout=1200)
    return directory


@pytest.mark.parametrize(
    ("program", "ends"), [(TRAINS, "trained by 3.0 workers"), (SEARCHES, "the best is {'x': 1}")]
)
def test_ray_train_and_ray_tune_run_on_the_nodes_of_a_block(
    lab: Yard, engine: BedEngine, packages: Path, program: str, ends: str
) -> None:
    lab.environ["PYTHONPATH"] = str(packages)
    (lab.home / "program.py").write_text(program)
    assert ends in run(lab, "program.py", seconds=600)
    assert left_of(engine, "yard") == []


def test_ctrl_c_during_remote_functions_ends_the_program_and_its_cluster(
    lab: Yard, engine: BedEngine
) -> None:
    (lab.home / "program.py").write_text(WAITS)
    output = lab.home / "output"
    with output.open("w") as stream:
        program = subprocess.Popen(
            [sys.executable, "program.py"],
            cwd=lab.home,
            env=lab.env(),
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )

    try:
        wait_until(
            lambda: "it waits" in output.read_text(), seconds=240, what="remote functions run"
        )
        os.killpg(program.pid, signal.SIGINT)
        program.wait(120)
    finally:
        program.kill()

    # Ray's own exit code for a driver that was interrupted.
    assert program.returncode == 1, output.read_text()
    assert output.read_text().endswith("KeyboardInterrupt\n")
    assert left_of(engine, "yard") == []
