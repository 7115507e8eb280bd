"""Clusters that a developer runs by hand: each lives until its `down`, unaffected by test runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.bed import bed, ec2, hosts, kubernetes
from tests.bed.aws_account import AMI, DOCKER_AMI, ROLE, USER
from tests.bed.aws_moto import REGION
from tests.bed.bed import BY_HAND
from tests.bed.kubernetes import KubeBed

# The images that a cluster's hosts can pull from its registry.
IMAGES = ("trainyard-bed/base:1", "trainyard-bed/ray:1", "trainyard-bed/ray-gpu:1")


def up(count: int, name: str) -> KubeBed:
    """Start a cluster of `count` hosts; it replaces a cluster of the same name."""
    home = BY_HAND / name
    _remove(name)
    # While this directory exists, no test run ends the engine.
    home.mkdir(parents=True, mode=0o700)
    bed.start(kept=False)
    return kubernetes.start(bed.SHARED, home, count=count, owner=hosts.by_hand(name))


def down(name: str) -> None:
    """Remove a cluster, and end the engine if it has no other users."""
    _remove(name)
    bed.leave()


def ec2_shell() -> None:
    """Open a shell whose AWS is the bed's; the cloud and its contents end with the shell."""
    with (
        tempfile.TemporaryDirectory() as home,
        bed.shared_engine() as engine,
        ec2.cloud(engine, Path(home)) as cloud,
    ):
        print(
            f"AWS at {cloud.url}; AMIs {AMI} and {DOCKER_AMI} (with Docker), user {USER}, "
            f"instance profile {ROLE}"
        )
        print(
            f"in a cluster file: ec2: {{region: {REGION}, ami: {AMI}, disk: 20GiB, "
            "use_internal_ips: true}"
        )
        print("HOME is another, with the state of clusters in it; exit removes all that is there")
        subprocess.run([os.environ.get("SHELL", "bash")], env={**os.environ, **cloud.environ()})


def _remove(name: str) -> None:
    if bed.SHARED.pid is not None:
        hosts.remove_owned(bed.SHARED, hosts.by_hand(name))
    shutil.rmtree(BY_HAND / name, ignore_errors=True)
