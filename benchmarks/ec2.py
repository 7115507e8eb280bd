"""Measure a cluster on EC2, simulated by the tests' bed: made by Trainyard, and by `ray up`.

Needs root, on Debian or Ubuntu. `ray up` gets a file like Ray's own example for AWS
(autoscaler/aws/example-full.yaml): the same instances, AMI and resources as Trainyard, and Ray's
defaults for the rest. Ray makes its key pair and security group in the first round, and finds them
in the others. Its role exists from the start, as in an account that has used Ray before: making the
role takes fixed pauses of 30 s, once per account.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bare_ray import RAY
from benchmarks.measure import (
    INVOKE,
    Measured,
    has_engine,
    in_turns,
    output_of,
    seconds_of,
    write_tasks,
)
from tests.bed import bed, ec2
from tests.bed.aws_account import AMI
from tests.bed.ec2 import Cloud

CLUSTER = f"""\
name: bench
backend: ec2
head: {{cpus: 1, memory: 1GiB}}
workers: [{{name: cpu, count: 2, cpus: 1, memory: 1GiB}}]
ec2: {{region: us-west-2, ami: {AMI}, instance_type: m5.large, disk: 20GiB, use_internal_ips: true}}
"""
_CONFIG = f"""{{InstanceType: m5.large, ImageId: {AMI},
                 BlockDeviceMappings: [{{DeviceName: /dev/sda1, Ebs: {{VolumeSize: 20, VolumeType: gp3}}}}]}}"""
RAW = f"""\
cluster_name: raw
max_workers: 2
provider: {{type: aws, region: us-west-2, use_internal_ips: true}}
auth: {{ssh_user: ubuntu}}
head_node_type: ray.head.default
available_node_types:
  ray.head.default:
    resources: {{CPU: 1, memory: 1073741824}}
    node_config: {_CONFIG}
  ray.worker.default:
    min_workers: 2
    max_workers: 2
    resources: {{CPU: 1, memory: 1073741824}}
    node_config: {_CONFIG}
"""
NODES = 3
ON_EACH = (
    f"command: ['true', '{{node}}']\nmatrix: {{node: {list(range(NODES))}}}\nresources: "
    "{cpus: 1}\ntogether: true\n"
)


class Bench:
    """A directory with a cluster file and a job, and a region of the bed."""

    def __init__(self, directory: Path, cloud: Cloud) -> None:
        self.directory = directory
        self.cloud = cloud
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("RAY_", "AWS_"))
        }

        self.env = {**kept, **cloud.environ(), "XDG_STATE_HOME": str(directory / "state")}
        (directory / "cluster.yaml").write_text(CLUSTER)
        (directory / "jobs" / "each").mkdir(parents=True)
        (directory / "jobs" / "each" / "job.yaml").write_text(ON_EACH)
        write_tasks(directory)

    def invoke(self, *words: str) -> float:
        return seconds_of([*INVOKE, *words, "-f", "cluster.yaml"], env=self.env, cwd=self.directory)

    def up(self) -> tuple[float, float]:
        """Make the cluster; return the seconds until it is up, and until all nodes ran a task."""
        up = self.invoke("cluster.up")
        return up, up + self.invoke("train.dispatch", "jobs/each", "--skip-smoke")

    def bare(self) -> float:
        """Run `ray up`; return the seconds until Ray has set up the last worker."""
        (self.directory / "raw.yaml").write_text(RAW)
        # Ray's cache of configurations is there: each round begins without one.
        environ = {**self.env, "TMPDIR": tempfile.mkdtemp(dir=self.directory)}
        began = time.perf_counter()
        output_of([RAY, "up", "-y", "raw.yaml"], env=environ, cwd=self.directory)
        while len(self.cloud.instances("running", ray_node_status="up-to-date")) < NODES:
            time.sleep(0.2)
        return time.perf_counter() - began

    def end_instances(self) -> None:
        """End all instances, but keep the key pair, the security group and the role."""
        self.cloud.ec2.terminate_instances(
            InstanceIds=[each["InstanceId"] for each in self.cloud.instances()]
        )
        while self.cloud.engine.docker(
            "ps", "-q", "--filter", f"name=^{self.cloud.name}-i-"
        ).stdout:
            time.sleep(0.5)


def measure(directory: Path) -> Iterator[Measured]:
    """Yield the measurements; none on a machine that cannot have the bed."""
    if not has_engine():
        print("(EC2 is left out: it needs root and a Docker engine; make test-tools)")
        return

    with bed.shared_engine() as engine, ec2.cloud(engine, directory / "bed") as cloud:
        bench = Bench(directory, cloud)
        again = []
        tasks = []

        def ours() -> float:
            up, first_tasks = bench.up()
            tasks.append(first_tasks)
            again.append(min(bench.invoke("cluster.up") for _ in range(3)))
            bench.invoke("cluster.down")
            return up

        def theirs() -> float:
            took = bench.bare()
            bench.end_instances()
            return took

        up, bare = in_turns(ours, theirs)

    yield Measured("cluster.up, head + 2 instances / ray up, its workers", up, bare, bar="<= 1.0x")
    yield Measured(
        "... with a task on each / ray up, its workers", sorted(tasks)[1], bare, bar="<= 1.0x"
    )
    yield Measured("cluster.up on EC2 again", min(again), bar="<= 5 s")
