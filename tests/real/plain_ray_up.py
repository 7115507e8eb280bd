"""A cluster made by Ray alone: `ray up` with a file of Ray's documentation, and `ray down`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bed.aws_account import AMI, USER
from tests.bed.aws_moto import REGION
from tests.bed.ec2 import Cloud
from tests.bed.instances import Instance
from tests.bed.kubernetes import wait

RAY = str(Path(sys.executable).parent / "ray")
NODE = f"InstanceType: m5.large, ImageId: {AMI}"
CLUSTER = f"""
cluster_name: plain
max_workers: 1
provider: {{type: aws, region: {REGION}, use_internal_ips: true, cache_stopped_nodes: false}}
auth: {{ssh_user: {USER}}}
head_node_type: head
available_node_types:
  head: {{node_config: {{{NODE}}}}}
  worker: {{node_config: {{{NODE}, InstanceMarketOptions: {{}}}}, min_workers: 1, max_workers: 1}}
setup_commands: []
head_start_ray_commands: [ray start --head --port=6379 --autoscaling-config=~/ray_bootstrap_config.yaml]
worker_start_ray_commands: [ray start --address=$RAY_HEAD_IP:6379]
"""


def wait_for_worker(cloud: Cloud) -> None:
    """Wait until the worker that the head launches has joined: then the cluster is complete."""

    def joined() -> bool:
        return (
            len(cloud.instances("running", ray_cluster_name="plain", ray_node_status="up-to-date"))
            == 2
        )

    wait(joined, "the worker is up to date", seconds=180, logs=cloud.logs)


@contextmanager
def cluster(cloud: Cloud) -> Iterator[Instance]:
    """Give the head of a cluster made by plain `ray up`; its worker is still being launched."""
    (cloud.home / "plain.yaml").write_text(CLUSTER)
    cloud.run(RAY, "up", "-y", "--no-config-cache", "plain.yaml")
    yield cloud.head()
    done = cloud.run(RAY, "down", "-y", "plain.yaml")
    assert "No nodes remaining." in done.stdout
    # Ray leaves these behind.
    assert {found.split()[0] for found in cloud.left()} == {"key-pair", "security-group"}
