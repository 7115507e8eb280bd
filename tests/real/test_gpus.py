"""GPUs that nvidia-smi lists, here by a stand-in that prints what the real one does, `[N/A]` too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.real.jobs import newest, write_job
from tests.real.yard import Yard

STAND_IN = """#!/bin/sh
count=$(cat "$(dirname "$0")/count")
index=0
while [ $index -lt $count ]; do
  case "$1" in
    -L) echo "GPU $index: NVIDIA L4 (UUID: GPU-000$index)" ;;
    *)  echo "$index, [N/A]" ;;
  esac
  index=$((index + 1))
done
"""
TWO_NODES_SHARE_A_MACHINE = """
name: {name}
backend: local
head: {{cpus: 1, memory: 1GiB}}
workers:
  - {{name: gpu, count: 2, cpus: 1, memory: 1GiB, gpus: 1}}
"""


@pytest.fixture
def machine(fresh: Yard) -> Path:
    """Give the directory of a stand-in for nvidia-smi; the file `count` in it is the number of GPUs."""
    programs = fresh.home / "programs"
    programs.mkdir()
    (programs / "nvidia-smi").write_text(STAND_IN)
    (programs / "nvidia-smi").chmod(0o755)
    (programs / "count").write_text("2")
    fresh.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
    return programs


def test_nodes_share_the_machines_gpus_and_a_missing_one_stops_every_run(fresh: Yard, machine: Path) -> None:
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
