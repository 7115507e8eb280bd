"""Another user's Ray on the same machine, and our other clusters there, are never touched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.real import ray_start
from tests.real.yard import Yard
from trainyard.seams import processes


@pytest.fixture
def foreign() -> Iterator[frozenset[processes.ProcessId]]:
    """Give the processes of a head that another user's `ray start` made; end them afterwards."""
    with ray_start.head(
        Path(f"/tmp/foreign-{os.getpid()}"), {"RAY_AUTH_MODE": "disabled"}, cpus=1
    ) as (_, leader):
        yield processes.members([leader])


def test_two_commands_at_once_make_one_cluster_which_ends_alone(
    yard: Yard, foreign: frozenset[processes.ProcessId], fresh: Yard
) -> None:
    fresh.write_cluster(
        "name: {name}\nbackend: local\nauth: none\nhead: {{cpus: 1, memory: 1GiB}}\n"
    )
    both = [fresh.start("cluster.up"), fresh.start("cluster.up")]
    printed = [command.communicate(timeout=200)[0] for command in both]
    assert [command.returncode for command in both] == [0, 0], printed
    assert sum(process.info["name"] == "raylet" for process in fresh.processes()) == 1
    assert fresh.address() != yard.address()
    assert set(fresh.states()) == {"head"}
    # A job can be submitted as soon as `up` returns.
    answer = httpx.post(f"{fresh.address()}/api/jobs/", json={"entrypoint": "true"}, timeout=30)
    assert answer.status_code == 200, answer.text

    # `down` also ends the processes that a head's killed keeper leaves.
    psutil.Process(fresh.keeper("head").pid).kill()
    fresh.run("cluster.down", "--end-runs")
    assert fresh.leftovers() == []
    assert yard.states() == {"head": "up", "gpu-0": "up", "gpu-1": "up"}
    assert len(foreign) > 5
    assert [process for process in foreign if not processes.alive(process)] == []
