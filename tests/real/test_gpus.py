"""GPUs that nvidia-smi lists; a stand-in plays nvidia-smi."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real import nvidia_smi
from tests.real.jobs import newest, write_job
from tests.real.yard import Yard

TWO_NODES_SHARE_A_MACHINE = """
name: {name}
backend: local
head: {{cpus: 1, memory: 1GiB}}
workers:
  - {{name: gpu, count: 2, cpus: 1, memory: 1GiB, gpus: 1}}
"""


@pytest.fixture
def machine(fresh: Yard) -> Path:
    """Give the directory of a stand-in for nvidia-smi; its file `count` is the number of GPUs."""
    return nvidia_smi.install(fresh, gpus=2)


def test_nodes_share_the_machines_gpus_and_a_missing_one_stops_every_run(
    fresh: Yard, machine: Path
) -> None:
    fresh.write_cluster(TWO_NODES_SHARE_A_MACHINE)
    fresh.run("cluster.up")
    write_job(
        fresh,
        "both",
        """
        command: [sh, -c, "echo gpu $CUDA_VISIBLE_DEVICES; sleep 2"]
        matrix: {i: [0, 1]}
        env: {I: "{i}"}
        resources: {gpus: 1}
        """,
    )

    fresh.run("train.dispatch", "both", "--skip-smoke")
    logs = sorted(path.read_text() for path in (newest(fresh) / "logs").glob("*.log"))
    assert logs == ["gpu 0\n", "gpu 1\n"]

    (machine / "count").write_text("1")
    failed = fresh.run("train.dispatch", "both", expect=5)
    assert "1 declared, nvidia-smi counts 0" in failed.stderr
    assert not list((newest(fresh) / "logs").glob("*.log"))
