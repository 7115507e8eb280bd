"""Measure images, a registry and a cluster of containers, on the Docker engine of the tests' bed.

Needs root, on Debian or Ubuntu.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import INVOKE, Measured, has_engine, seconds_of, write_tasks
from tests.bed import bed, images
from tests.bed.engine import BedEngine
from trainyard.paths import shipped
from trainyard.seams.processes import free_ports

CLUSTER = """\
name: bench-containers
backend: compose
image: ray-cpu
head: {{cpus: 1}}
workers:
  - {{name: cpu, count: 2, cpus: 2}}
registry: {{address: "127.0.0.1:{port}", insecure: true, image: "{registry}"}}
build: {{base: "{base}", network: host}}
"""

UNTIL_READY = """\
import json, time, urllib.request
while True:
    try:
        with urllib.request.urlopen("http://127.0.0.1:8265/api/v0/nodes", timeout=5) as answer:
            found = json.load(answer)["data"]["result"]["result"]
        if sum(node["state"] == "ALIVE" for node in found) >= {nodes}:
            break
    except OSError:
        pass
    time.sleep(0.1)
"""


class Bench:
    """A directory with a cluster file and an image, and a Docker engine."""

    def __init__(self, directory: Path, engine: BedEngine) -> None:
        self.directory = directory
        self.engine = engine
        self.env = {
            **os.environ,
            **engine.environ(),
            "XDG_STATE_HOME": str(directory / "state"),
            "XDG_CACHE_HOME": str(directory / "cache"),
        }

        port = free_ports(1)[0]
        text = CLUSTER.format(port=port, registry=images.REGISTRY, base=images.BASE)
        (directory / "cluster.yaml").write_text(text)
        shutil.copytree(shipped("images") / "ray-cpu", directory / "images" / "ray-cpu")
        write_tasks(directory)

    def invoke(self, *words: str) -> float:
        return seconds_of([*INVOKE, *words, "-f", "cluster.yaml"], env=self.env, cwd=self.directory)

    def push(self) -> int:
        """Build and push the image; return the number of bytes sent."""
        done = subprocess.run(
            [*INVOKE, "image.push", "-f", "cluster.yaml", "--json"],
            env=self.env, cwd=self.directory, capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
        return int(json.loads(done.stdout)["bytes_sent"])

    def bare_containers(self) -> float:
        """Start the same nodes with `docker run`; return the seconds until Ray has all of them."""
        nodes = {"head": "--head", "w0": "--address=head:6379", "w1": "--address=head:6379"}
        began = time.perf_counter()
        self.engine.docker("network", "create", "bench-bare")

        try:
            for name, where in nodes.items():
                self.engine.docker(
                    *(
                        "run",
                        "-d",
                        "--name",
                        f"bench-{name}",
                        "--network",
                        "bench-bare",
                        "--network-alias",
                        name,
                    ),
                    *(
                        "--shm-size=1g",
                        "trainyard/ray-cpu:ray-2.60.0",
                        "ray",
                        "start",
                        where,
                        "--block",
                    ),
                    *("--num-cpus=2", "--disable-usage-stats"),
                )

            self.engine.docker(
                "exec", "bench-head", "python", "-c", UNTIL_READY.format(nodes=len(nodes))
            )
            return time.perf_counter() - began
        finally:
            self.engine.docker("rm", "-f", "-v", *(f"bench-{name}" for name in nodes), check=False)
            self.engine.docker("network", "rm", "bench-bare", check=False)


def measure(directory: Path) -> Iterator[Measured]:
    """Yield the measurements; none on a machine that cannot have the bed."""
    if not has_engine():
        print(
            "(images and containers are left out: they need root and a Docker engine; make "
            "test-tools)"
        )
        return

    with bed.shared_engine() as engine:
        bench = Bench(directory, engine)
        bench.invoke("registry.up")
        try:
            yield from _images(bench)
            yield from _cluster(bench)
        finally:
            bench.invoke("cluster.down")
            bench.invoke("registry.down", "--purge")


def _images(bench: Bench) -> Iterator[Measured]:
    bench.invoke("image.push")
    yield Measured(
        "image.build, unchanged", min(bench.invoke("image.build") for _ in range(3)), bar="<= 2 s"
    )
    push = min(bench.invoke("image.push") for _ in range(3))
    yield Measured("image.push, unchanged: build, lint, push", push, bar="<= 4 s")
    code = bench.directory / "images" / "ray-cpu" / "files" / "opt" / "code" / "mine.py"
    code.parent.mkdir(parents=True, exist_ok=True)
    code.write_text("ANSWER = 42\n")
    yield Measured("MB pushed after a change in the image's code", bench.push() / 1e6, bar="< 1 MB")


def _cluster(bench: Bench) -> Iterator[Measured]:
    bare = bench.bare_containers()
    yield Measured(
        "cluster.up, 3 containers / bare docker run of the same", bench.invoke("cluster.up"), bare
    )
    yield Measured(
        "cluster.up of containers again",
        min(bench.invoke("cluster.up") for _ in range(3)),
        bar="<= 2 s",
    )
