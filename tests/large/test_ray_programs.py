"""Programs that use Ray directly: the tests that take too long to run after every change."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.bed import images
from tests.bed.engine import BedEngine
from tests.bed.kubernetes import KubeBed
from tests.real import kube as kubernetes
from tests.real import matrix
from tests.real.jobs import newest, write_job
from tests.real.yard import Yard

# More than one part of a package of files that is sent.
LARGE = 70 * 1024**2
READS = """
    import hashlib
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    @ray.remote(num_cpus=0.1)
    def read():
        with open("weights.bin", "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    ray.init()
    nodes = [node["NodeID"] for node in ray.nodes() if node["Resources"].get("CPU")]
    wheres = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    for found in ray.get([read.options(scheduling_strategy=where).remote() for where in wheres]):
        print("read", found)
    """
HAS_AN_ACTOR = """
    import os
    import ray

    @ray.remote(num_cpus=1)
    class Learner:
        def where(self):
            return ray.get_runtime_context().get_node_id()

    ray.init()
    print("learns on", ray.get(Learner.remote().where.remote()), flush=True)
    """
GANG = "command: [python, learn.py]\nmatrix: {n: [0, 1, 2]}\nenv: {N: '{n}'}\ntogether: true\n"
GROWS = {
    "head": {"cpus": 0, "memory": "1GiB"},
    "workers": [
        {"name": "burst", "min": 0, "max": 2, "cpus": 1, "memory": "1GiB", "idle_timeout": "5s"}
    ],
}

# Does a runner's work for two tasks, one after the other, with pins that last one second instead of
# ten minutes. Each task is a driver of its own: between the tasks only the pin keeps the package.
PINNED = """
import io, subprocess, sys, time, zipfile

import ray
from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put, _pin_runtime_env_uri
from trainyard_runner import ray_package

URI = "gcs://_ray_pkg_0123456789abcdef.zip"


def say_whether_it_is_there(when):
    print(when, _internal_kv_get(URI.encode()) is not None, flush=True)


ray.init()
content = io.BytesIO()
with zipfile.ZipFile(content, "w") as package:
    package.writestr("weights.txt", "all weights")
_internal_kv_put(URI.encode(), content.getvalue())
ray_package.PINNED = 1
ray_package._EVERY = 0.3
pins = ray_package.Pins([URI], lambda uri, seconds: _pin_runtime_env_uri(uri, expiration_s=seconds))
for number in (1, 2):
    task = subprocess.Popen([sys.executable, sys.argv[1], URI])
    after = time.monotonic() + 8
    while task.poll() is None or time.monotonic() < after:
        pins.look()
        time.sleep(0.1)
    say_whether_it_is_there(f"after task {number}:")
time.sleep(4)
say_whether_it_is_there("without pins:")
"""
TASK = """
import sys

import ray


@ray.remote(num_cpus=0.1)
def read():
    with open("weights.txt") as file:
        return file.read()


ray.init(runtime_env={"working_dir": sys.argv[1]}, log_to_driver=False)
print("read", ray.get(read.remote()), flush=True)
"""


TWO_CONTAINERS = """
name: {{name}}
backend: compose
image: {image}
head: {{{{cpus: 2, memory: 2GiB}}}}
workers: [{{{{name: cpu, count: 1, cpus: 2, memory: 2GiB}}}}]
"""


def printed(yard: Yard, word: str) -> list[str]:
    """Return what tasks of the newest run printed after a word, in the order of their logs."""
    logs = sorted((newest(yard) / "logs").glob("*.log"))
    lines = [line for path in logs for line in path.read_text().splitlines()]
    return [line.removeprefix(word).strip() for line in lines if line.startswith(word)]


def test_pip_installs_for_what_a_command_starts_through_ray_too(yard: Yard) -> None:
    directory = matrix.write(yard, "pip")
    yard.run("train.dispatch", directory.name, "--skip-smoke", expect=1)
    ours = matrix.found((newest(yard) / "logs" / f"{directory.name}.1.log").read_text())
    assert ours == matrix.everywhere(nodes=3)


def test_nodes_without_a_shared_disk_are_like_under_ray_job_submit(
    fresh: Yard, engine: BedEngine
) -> None:
    fresh.environ.update(engine.environ())
    fresh.write_cluster(TWO_CONTAINERS.format(image=images.RAY))
    directory = matrix.write(fresh, "uv")
    with fresh.up():
        fresh.run("train.dispatch", directory.name, "--skip-smoke", expect=1)
        ours = matrix.found((newest(fresh) / "logs" / f"{directory.name}.1.log").read_text())
        assert ours == matrix.everywhere(nodes=2)
        assert matrix.submitted(fresh, directory) == ours


def test_a_job_that_is_sent_in_several_parts_is_whole_on_every_node(yard: Yard) -> None:
    job = write_job(
        yard, "large", "command: [python, read.py]\nresources: {cpus: 0.2}\n", read=READS
    )
    content = os.urandom(LARGE)
    (yard.home / "jobs" / job / "weights.bin").write_bytes(content)
    yard.run("train.dispatch", job, "--skip-smoke")
    assert printed(yard, "read ") == [hashlib.sha256(content).hexdigest()] * 3


def test_a_package_outlives_its_drivers_while_it_is_pinned(yard: Yard, tmp_path: Path) -> None:
    opened = yard.json("cluster.open", "--dry")
    (tmp_path / "pinned.py").write_text(PINNED)
    (tmp_path / "task.py").write_text(TASK)
    # The nodes are processes of this machine: they have this file and this Python.
    program = [sys.executable, str(tmp_path / "pinned.py"), str(tmp_path / "task.py")]

    done = subprocess.run(
        [
            Path(sys.executable).with_name("ray"),
            "job",
            "submit",
            f"--address={opened['address']}",
            "--",
            *program,
        ],
        env={**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": opened["token_file"]},
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall("^(?:read|after|without) .*", done.stdout, re.MULTILINE) == [
        "read all weights",
        "after task 1: True",
        "read all weights",
        "after task 2: True",
        "without pins: False",
    ]


def test_tasks_of_a_gang_have_room_for_their_actors(yard: Yard) -> None:
    gang = f"{GANG}resources: {{cpus: 1, actors: {{cpus: 1}}}}\n"
    yard.run("train.dispatch", write_job(yard, "gang", gang, learn=HAS_AN_ACTOR), "--skip-smoke")
    assert len(printed(yard, "learns on ")) == 3

    # Three tasks and six actors need nine CPUs: the cluster has six.
    crowd = f"{GANG}resources: {{cpus: 1, actors: {{cpus: 2}}}}\n"
    refused = yard.run(
        "train.dispatch", write_job(yard, "crowd", crowd), "--skip-smoke", expect=2
    ).stderr
    assert "the cluster has 6 CPUs in all" in refused


def test_a_cluster_grows_for_actors(kube: KubeBed, operator: None, tmp_path: Path) -> None:
    lab = kubernetes.yard(kube, tmp_path, "grows")
    kubernetes.write(kube, lab, GROWS, namespace="grows")
    job = "command: [python, learn.py]\nresources: {cpus: 1, actors: {cpus: 1}}\n"
    with lab.up("--purge"):
        assert list(lab.states()) == ["head"]
        lab.run("train.dispatch", write_job(lab, "learn", job, learn=HAS_AN_ACTOR), "--skip-smoke")
        assert len(printed(lab, "learns on ")) == 1
        assert lab.json("train.status")["state"] == "succeeded"
