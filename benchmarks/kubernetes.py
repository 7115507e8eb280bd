"""Measure a cluster on Kubernetes, on the hosts of the tests' bed (root, Debian or Ubuntu)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import INVOKE, Measured, has_engine, in_turns, seconds_of, write_tasks
from tests.bed import bed, kubernetes, programs
from tests.bed.kubernetes import KubeBed

IMAGE = "trainyard-bed/ray:1"
CLUSTER = """\
name: bench
backend: kuberay
image: {registry}/{image}
head: {{cpus: 1, memory: 1GiB}}
workers:
  - {{name: cpu, count: 2, cpus: 1, memory: 1GiB}}
registry: {{address: "{registry}", insecure: true}}
kuberay:
  namespace: bench
  requests: {{cpus: 0.1}}
  operator: {{chart: "{chart}"}}
"""
# The keys of ray-operator/config/samples/ray-cluster.sample.yaml, with the sizes of the cluster
# above.
SAMPLE = """\
apiVersion: ray.io/v1
kind: RayCluster
metadata: {{name: bare, namespace: bare}}
spec:
  headGroupSpec:
    rayStartParams: {{}}
    template:
      spec:
        containers:
          - name: ray-head
            image: {image}
            resources: {{limits: {{cpu: 1, memory: 1Gi}}, requests: {{cpu: 100m, memory: 1Gi}}}}
            ports:
              - {{containerPort: 6379, name: gcs-server}}
              - {{containerPort: 8265, name: dashboard}}
              - {{containerPort: 10001, name: client}}
  workerGroupSpecs:
    - groupName: cpu
      replicas: 2
      minReplicas: 2
      maxReplicas: 2
      rayStartParams: {{}}
      template:
        spec:
          containers:
            - name: ray-worker
              image: {image}
              resources: {{limits: {{cpu: 1, memory: 1Gi}}, requests: {{cpu: 100m, memory: 1Gi}}}}
"""
NODES = 3


class Bench:
    """A directory with a cluster file and a job, and three hosts of the bed."""

    def __init__(self, directory: Path, kube: KubeBed) -> None:
        self.directory = directory
        self.kube = kube
        self.env = {**os.environ, **kube.environ(), "XDG_STATE_HOME": str(directory / "state")}
        text = CLUSTER.format(registry=kube.registry, image=IMAGE, chart=kube.chart)
        (directory / "cluster.yaml").write_text(text)
        (directory / "jobs" / "noop").mkdir(parents=True)
        (directory / "jobs" / "noop" / "job.yaml").write_text("command: ['true']\n")
        write_tasks(directory)

    def invoke(self, *words: str) -> float:
        return seconds_of([*INVOKE, *words, "-f", "cluster.yaml"], env=self.env, cwd=self.directory)

    def bare(self) -> float:
        """Apply a cluster like KubeRay's sample; return the seconds until its workers are ready."""
        self.kube.kubectl("create", "namespace", "bare")
        began = time.perf_counter()
        try:
            self.kube.apply(SAMPLE.format(image=f"{self.kube.registry}/{IMAGE}"))
            while self._ready_workers() < NODES - 1:
                time.sleep(0.5)
            return time.perf_counter() - began
        finally:
            self.kube.kubectl("delete", "namespace", "bare", "--wait=true")

    def submit(self) -> float:
        """Run `ray job submit` in the head's pod, as KubeRay's guides do; return the seconds."""
        head = self.kube.kubectl(
            *("get", "pod", "-n", "bench", "-l", "ray.io/cluster=bench,ray.io/node-type=head"),
            *("-o", "jsonpath={.items[0].metadata.name}"),
        ).stdout
        began = time.perf_counter()
        where = ("-n", "bench", head, "-c", "ray-head", "--")

        self.kube.kubectl(
            "exec",
            *where,
            "ray",
            "job",
            "submit",
            "--address",
            "http://127.0.0.1:8265",
            "--",
            "true",
        )

        return time.perf_counter() - began

    def _ready_workers(self) -> int:
        said = self.kube.kubectl(
            *(
                "get",
                "raycluster",
                "bare",
                "-n",
                "bare",
                "-o",
                "jsonpath={.status.readyWorkerReplicas}",
            ),
            check=False,
        )
        return int(said.stdout or 0)


def measure(directory: Path) -> Iterator[Measured]:
    """Yield the measurements; none on a machine that cannot have the bed."""
    if not has_engine() or programs.missing():
        print("(Kubernetes is left out: it needs root, a Docker engine and Go; make test-tools)")
        return

    with (
        bed.shared_engine() as engine,
        kubernetes.kube_bed(engine, directory / "bed", count=NODES) as kube,
    ):
        kube.publish(IMAGE)
        bench = Bench(directory, kube)
        # Not measured: this installs KubeRay, and each host pulls the image.
        bench.invoke("cluster.up")

        try:
            yield Measured(
                "cluster.up on Kubernetes again",
                min(bench.invoke("cluster.up") for _ in range(3)),
                bar="<= 10 s",
            )
            run, submit = in_turns(
                lambda: bench.invoke("train.dispatch", "jobs/noop"), bench.submit
            )
            yield Measured("no-op run on Kubernetes / ray job submit in the head", run, submit)
        finally:
            bench.invoke("cluster.down")

        up, bare = in_turns(lambda: _up(bench), bench.bare)
        yield Measured("cluster.up, head + 2 pods / kubectl apply, KubeRay's sample", up, bare)
        bench.invoke("cluster.down", "--purge")


def _up(bench: Bench) -> float:
    took = bench.invoke("cluster.up")
    bench.invoke("cluster.down")
    return took
