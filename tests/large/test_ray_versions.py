"""Ray clusters of other versions, each in its own environment, used by the backend `existing`."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.real.jobs import newest
from tests.real.yard import Yard, wait_until
from trainyard import versions
from trainyard.seams import processes
from trainyard.seams.ray_api import RayApi, UnreachableError

JOB = """
command: [python, train.py, "{seed}"]
matrix: {seed: [0, 1]}
"""
# The log and the checkpoint are longer than the blocks in which Ray sends files.
TRAIN = """
import os, pathlib, random, sys

import ray

weights = random.Random(int(sys.argv[1])).randbytes(1_000_000)
pathlib.Path(os.environ["TRAINYARD_OUTPUT"], "seed").write_text(sys.argv[1])
pathlib.Path(os.environ["TRAINYARD_CHECKPOINT"], "weights").write_bytes(weights)
for step in range(20_000):
    print("step", step)


@ray.remote(num_cpus=0)
class Counter:
    def count(self):
        return 7


ray.init()
left_there = Counter.options(name=f"left-{sys.argv[1]}", lifetime="detached").remote()
print("counted", ray.get(left_there.count.remote()))
"""
START_SECONDS = 180.0


def environment(home: Path, version: str) -> Path:
    """Make an environment with a version of Ray; return its directory of programs."""
    python = home / "venv" / "bin"
    subprocess.run([sys.executable, "-m", "venv", str(home / "venv")], check=True)
    # Older Rays import pkg_resources, which newer setuptools do not have.
    packages = [f"ray[default]=={version}", "setuptools<81"]
    subprocess.run([str(python / "python"), "-m", "pip", "install", "-q", *packages], check=True)
    return python


@contextmanager
def head(programs: Path, home: Path) -> Iterator[str]:
    """Run a head as its owner would, without a token; give its address."""
    gcs, dashboard = processes.free_ports(2)
    words = ["start", "--head", "--block", f"--port={gcs}", "--num-cpus=2", "--disable-usage-stats"]
    words += [
        "--node-ip-address=127.0.0.1",
        "--dashboard-host=127.0.0.1",
        f"--dashboard-port={dashboard}",
    ]

    # The names of Ray's sockets are long, and the paths of sockets must be short.
    words.append(f"--temp-dir=/tmp/ray-{os.getpid()}-{dashboard}")
    path = f"{programs}:{os.environ['PATH']}"
    with (home / "head.log").open("wb") as log:
        process = subprocess.Popen(
            [str(programs / "ray"), *words],
            # Recent Rays make a token unless they are told not to; older ones have no tokens.
            env={**os.environ, "PATH": path, "RAY_AUTH_MODE": "disabled"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    try:
        address = f"http://127.0.0.1:{dashboard}"
        wait_until(lambda: answers(address), seconds=START_SECONDS, what="Ray's dashboard answers")
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def answers(address: str) -> bool:
    try:
        with RayApi(address, None) as ray:
            return bool(ray.nodes())
    except UnreachableError:
        return False


def write(fresh: Yard, address: str) -> None:
    fresh.write_cluster(
        f"name: {{name}}\nbackend: existing\nauth: none\nexisting: {{{{address: '{address}'}}}}\n"
    )
    job = fresh.home / "jobs" / "tiny"
    job.mkdir(parents=True)
    (job / "job.yaml").write_text(JOB)
    (job / "train.py").write_text(TRAIN)


@pytest.mark.parametrize(
    "version", ["2.31.0", "2.36.0", "2.44.1", "2.46.0", "2.52.0", versions.RAY]
)
def test_this_ray_works(version: str, fresh: Yard, tmp_path: Path) -> None:
    with head(environment(tmp_path, version), tmp_path) as address:
        write(fresh, address)
        assert f"Ray {version}, 1 node alive" in fresh.json("cluster.up")["steps"][0]["seen"]
        fresh.run("smoke.run")
        fresh.run("train.dispatch", "jobs/tiny")
        run = newest(fresh)
        assert sorted(path.read_text() for path in run.glob("outputs/*/seed")) == ["0", "1"]

        for seed in (0, 1):
            (weights,) = run.glob(f"checkpoints/seed={seed}/weights")
            assert weights.read_bytes() == random.Random(seed).randbytes(1_000_000)
            (log,) = run.glob(f"logs/seed={seed}.*.log")
            steps = [line.split()[-1] for line in log.read_text().splitlines() if "step" in line]
            assert steps == [str(step) for step in range(20_000)]
            assert "counted 7" in log.read_text()

        fresh.run(
            "train.dispatch", "jobs/tiny", "--no-wait", "--set", "command=[sleep, '600{seed}']"
        )
        fresh.run("train.stop")
        assert fresh.json("train.status")["state"] == "stopped"


@pytest.mark.parametrize("version", ["2.10.0"])
def test_this_ray_is_refused_before_anything_is_sent(
    version: str, fresh: Yard, tmp_path: Path
) -> None:
    with head(environment(tmp_path, version), tmp_path) as address:
        write(fresh, address)
        for command in (["cluster.up"], ["train.dispatch", "jobs/tiny"]):
            refused = fresh.run(*command, expect=3)
            assert (
                f"Ray {version} runs on this cluster, and the oldest supported version is "
                f"{versions.OLDEST_RAY}"
            ) in refused.stderr
        assert not list(fresh.home.glob("results/*"))
