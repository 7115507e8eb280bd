"""One Python program on every backend, with a cluster for the length of a block.

However the block ends, the cluster that it made is removed, and nothing else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed.engine import BedEngine
from tests.bed.kubernetes import KubeBed
from tests.real import kube as kubernetes
from tests.real import nvidia_smi
from tests.real.containers import left_of
from tests.real.jobs import write_job
from tests.real.nvidia_smi import STAND_IN
from tests.real.yard import HEAD_AND_WORKER, Yard, wait_until

DOCS = Path(__file__).parents[2] / "docs"
CONTAINERS = """
name: {name}
backend: compose
image: trainyard-bed/ray:1
head: {{cpus: 1, memory: 2GiB}}
"""
PODS = {"head": {"cpus": 1, "memory": "2GiB"}}
SPACE = "python"
# A cell of a notebook: an event loop is running, and its streams are no files.
CELL = """
import asyncio, io, sys
from trainyard import Cluster, Job

async def cell():
    with Cluster.from_file() as cluster:
        cluster.dispatch(Job(command=["sleep", "600"]))
        raise ValueError("mine")

sys.stdout = sys.stderr = shown = io.StringIO()
try:
    asyncio.run(cell())
except ValueError as error:
    print(error)
sys.__stdout__.write(shown.getvalue())
"""
TUNED = """
from trainyard import Cluster, Job

tune = {"space": {"x": {"grid": [1, 3, 2]}}, "search": "grid", "metric": "reward", "mode": "max", "samples": 3}
run = Cluster.from_file().tune(Job(command=["echo", '{{"reward": {x}}}'], tune=tune))
print(len(list(run)), run.wait().state)
print(run.best.params, run.best.value, sorted(trial.state for trial in run.trials))
"""
NEVER_ENTERED = """
from trainyard.errors import TrainyardError
from trainyard.sematic import RayCluster, RayNodeConfig, SimpleRayCluster

config = SimpleRayCluster(n_nodes=1, node_config=RayNodeConfig(cpu=1, memory_gb=2, gpu_count=1))
for seconds in (0, 900):
    try:
        with RayCluster(config=config, activation_timeout_seconds=seconds, name="yard"):
            print("entered")
    except TrainyardError as error:
        print(type(error).__name__, error.what)
"""
# A program of Sematic's, with its imports changed; the module `helper` is in its directory.
SEMATIC = """
import os
import subprocess
import sys
import ray
import helper
from trainyard.errors import RequestError
from trainyard.sematic import RayCluster, RayNodeConfig, SimpleRayCluster

@ray.remote
class Learner:
    def learn(self):
        print("learned by an actor")
        return helper.VALUE

@ray.remote
def fails():
    raise ValueError("theirs")

@ray.remote
def alive():
    return len([node for node in ray.nodes() if node["Alive"]])

def pipeline(fail=False):
    config = SimpleRayCluster(n_nodes=2, node_config=RayNodeConfig(cpu=1, memory_gb=2))
    env = {"working_dir": "."}
    with RayCluster(config=config, forward_logs=True, name="yard", runtime_env=env):
        learners = [Learner.remote() for _ in range(2)]
        values = ray.get([learner.learn.remote() for learner in learners])
        nodes = len([node for node in ray.nodes() if node["Alive"]])
        try:
            with RayCluster(config=config, name="inner"):
                print("the inner block was entered")
        except RequestError as error:
            print("inner:", error.what)
        # A program that leaves Ray is on the cluster again, and so is what it starts.
        ray.shutdown()
        print("again on", ray.get(alive.remote()), "nodes")
        code = "import ray; ray.init(logging_level='ERROR'); print('a subprocess on', len(ray.nodes()), 'nodes')"
        # On a small head another server of Ray Client's may not find room.
        if not os.environ["RAY_ADDRESS"].startswith("ray://"):
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
            print(done.stdout, done.stderr)
        try:
            ray.get(fails.remote())
        except ValueError as error:
            print("raised there:", str(error).splitlines()[-1])
        if fail:
            raise ValueError("mine")
        return nodes, values

print("returned", pipeline(), ray.is_initialized(), os.environ.get("RAY_AUTH_MODE"))
"""
# The second cluster has another token.
SEMATIC_AGAIN = """
try:
    pipeline(fail=True)
except ValueError as error:
    print("raised", error, ray.is_initialized())
"""
# From this machine `ray` cannot reach another user's cluster.
ELSEWHERE = """
import ray
from trainyard import Cluster
from trainyard.errors import TrainyardError

for ray_env in ({}, None):
    with Cluster.from_file("theirs", ray_env=ray_env) as cluster:
        try:
            ray.get(ray.put(1))
            print("on the wrong Ray")
        except ValueError as error:
            print(error)

with Cluster.from_file("theirs", ray_env={}) as cluster:
    try:
        cluster.ray()
    except TrainyardError as error:
        print(error.what)

ray.init("local", num_cpus=1)
try:
    with Cluster.from_file("theirs", ray_env={}):
        print("on the wrong Ray")
except TrainyardError as error:
    print(error.what)
"""
INSIDE = """
import ray
from trainyard import Cluster

with Cluster.from_file("{file}", ray_env={{}}) as cluster:
    # A cell of a notebook is run twice.
    assert cluster.ray() is cluster.ray() is ray
    seven = ray.remote(lambda: 7)
    print(len(ray.nodes()), "nodes,", ray.get(seven.remote()))
"""
# A GPU that looks free to every program outside of Ray.
BROKEN_GPU = STAND_IN.replace("#!/bin/sh\n", '#!/bin/sh\n[ -z "$RAY_JOB_ID" ] || exit 9\n')


def run(yard: Yard, *arguments: str, seconds: float = 240.0) -> str:
    """Run Python in the yard; fail unless it exits with 0, and return what it printed."""
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=yard.home, env=yard.env(), capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def interrupted(yard: Yard, moment: str, number: signal.Signals = signal.SIGINT) -> str:
    """Run the program, signal it once it has printed `moment`; return what it printed."""
    output = yard.home / "output"
    with output.open("w") as stream:
        program = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("program.py")), yard.cluster],
            cwd=yard.home,
            env=yard.env(),
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )

    try:
        wait_until(
            lambda: moment in output.read_text() or program.poll() is not None,
            seconds=240,
            what=f"it says {moment!r}",
        )
        os.killpg(program.pid, number)
        program.wait(240)
    finally:
        program.kill()

    assert program.returncode == -signal.SIGINT, output.read_text()
    return output.read_text()


def assert_trained_and_stopped(yard: Yard, output: str) -> None:
    assert "ended: [('i=1', 'succeeded'), ('i=2', 'succeeded')] ['1', '2']\n" in output, output
    assert "KeyboardInterrupt" in output
    assert yard.json("train.status")["state"] == "stopped"


@pytest.mark.core
def test_processes_of_this_machine_end_with_the_program(fresh: Yard) -> None:
    fresh.write_cluster(HEAD_AND_WORKER)
    interrupted(fresh, "ok  Start the head and 1 worker", signal.SIGTERM)
    assert fresh.leftovers() == []
    assert_trained_and_stopped(fresh, interrupted(fresh, "[long] waiting"))
    assert fresh.leftovers() == []


def test_containers_end_with_the_program(fresh: Yard, engine: BedEngine) -> None:
    fresh.environ.update(engine.environ())
    fresh.write_cluster(CONTAINERS)
    assert_trained_and_stopped(fresh, interrupted(fresh, "[long] waiting"))
    assert left_of(engine, fresh.cluster) == []
    assert not fresh.state.exists()


@pytest.mark.breaking
def test_pods_end_with_the_program(kube: KubeBed, operator: None, tmp_path: Path) -> None:
    lab = kubernetes.yard(kube, tmp_path, "python")
    kubernetes.write(kube, lab, PODS, namespace=SPACE)
    try:
        assert_trained_and_stopped(lab, interrupted(lab, "[long] waiting"))
        assert kubernetes.belongings(kube, "python") == []
        assert not lab.state.exists()
    finally:
        lab.run("cluster.down", "--end-runs")


def test_an_existing_cluster_stays_and_its_run_ends_with_the_block(yard: Yard) -> None:
    shown = run(yard, "-c", CELL)
    assert "(already" in shown and "ok  Start run job-" in shown and "checks ok, " in shown
    assert shown.endswith("mine\n")
    assert yard.json("train.status")["state"] == "stopped"
    assert set(yard.states().values()) == {"up"}


def test_a_sweep_tells_its_trials_and_the_best(yard: Yard) -> None:
    said = run(yard, "-c", TUNED).splitlines()
    assert said[-2:] == ["3 succeeded", "{'x': 3} 3.0 ['complete', 'complete', 'complete']"]


def test_a_block_is_not_entered_without_smoke_or_in_time_and_nothing_stays(fresh: Yard) -> None:
    nvidia_smi.install(fresh, gpus=1, program=BROKEN_GPU)
    fresh.write_cluster(HEAD_AND_WORKER)
    late, broken = run(fresh, "-c", NEVER_ENTERED).splitlines()
    assert late == "NotReadyError not all steps were done within 0 s"
    assert broken.startswith("SmokeError smoke test failed: gpus: ")
    assert fresh.leftovers() == []


def assert_sematics(yard: Yard, more: str = "") -> str:
    """Run Sematic's program: `ray` is the cluster only inside the block. Return its output."""
    (yard.home / "helper.py").write_text("VALUE = 7\n")
    (yard.home / "pipeline.py").write_text(SEMATIC + more)
    said = run(yard, "pipeline.py")
    assert "returned (2, [7, 7]) False None\n" in said
    assert "raised there: ValueError: theirs\n" in said
    assert "learned by an actor" in said
    assert "inner: ray is connected already, to another cluster\n" in said
    assert "again on 2 nodes\n" in said
    return said


def test_ray_is_the_cluster_in_a_block_of_sematics(fresh: Yard) -> None:
    fresh.write_cluster(HEAD_AND_WORKER)
    said = assert_sematics(fresh, SEMATIC_AGAIN)
    assert "a subprocess on 2 nodes\n" in said
    assert "raised mine False\n" in said
    assert fresh.leftovers() == []


def test_ray_is_the_cluster_in_a_block_whose_nodes_are_containers(
    fresh: Yard, engine: BedEngine
) -> None:
    fresh.environ.update(engine.environ())
    fresh.write_cluster(CONTAINERS)
    assert_sematics(fresh)
    assert left_of(engine, "yard") == []


@pytest.mark.breaking
def test_ray_is_the_cluster_in_a_block_whose_nodes_are_pods(
    kube: KubeBed, operator: None, tmp_path: Path
) -> None:
    lab = kubernetes.yard(kube, tmp_path, "python")
    kubernetes.write(kube, lab, PODS, namespace=SPACE)
    assert_sematics(lab)
    assert kubernetes.belongings(kube, "yard") == []


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Give a cluster that exists before any block; unlike `yard`, it has no simulated GPUs."""
    demo = Yard(tmp_path_factory.mktemp("demo"), cluster="demo")
    demo.write_cluster(HEAD_AND_WORKER)
    with demo.up():
        yield demo


def test_ray_uses_another_user_s_cluster_and_starts_nothing_elsewhere(demo: Yard) -> None:
    existing = f"{{{{address: '{demo.address()}', token_file: {demo.state}/token}}}}"
    file = demo.write_cluster(
        f"name: {{name}}\nbackend: existing\nexisting: {existing}\n", name="theirs"
    )
    (demo.home / "program.py").write_text(ELSEWHERE)
    job = "command: [python, inside.py]\nresources: {cpus: 1, actors: {cpus: 1}}\n"
    write_job(demo, "inside", job, inside=INSIDE.format(file=file))
    said = run(demo, "program.py")
    assert "2 nodes, 7" in demo.run("train.dispatch", "inside", "--skip-smoke").stdout
    assert "ray does not reach cluster theirs from this program: use cluster.dispatch(job)" in said
    assert "ray is not connected to cluster theirs: call cluster.ray() first" in said
    assert "programs of this machine do not reach the Ray of cluster theirs" in said
    assert "ray is connected already, to another cluster" in said
    assert "wrong" not in said


def test_examples_in_the_python_documentation_pass_doctest(demo: Yard) -> None:
    run(demo, "-m", "doctest", "-o", "ELLIPSIS", str(DOCS / "python.md"))
