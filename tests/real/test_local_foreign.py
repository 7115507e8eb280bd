"""Other people's Ray on the same machine, and our other clusters there, are never touched."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.real.yard import Yard
from trainyard.seams import processes


@pytest.fixture
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[frozenset[processes.ProcessId]]:
    """Start a head as somebody else would, with `ray start`; end it by its own processes."""
    temp = tmp_path_factory.mktemp("f", numbered=True)
    short = Path(f"/tmp/foreign-{os.getpid()}")
    short.symlink_to(temp)
    gcs, dashboard, client = processes.free_ports(3)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    environment |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "disabled"}
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", f"--port={gcs}", "--num-cpus=1"]
    command += [f"--dashboard-port={dashboard}", f"--ray-client-server-port={client}", f"--temp-dir={short}"]
    command += ["--dashboard-agent-listen-port=0", "--object-store-memory=100000000", "--disable-usage-stats"]
    child = subprocess.Popen(command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
    leader = processes.ProcessId(child.pid, "")
    try:
        assert child.wait(timeout=90) == 0
        yield processes.members([leader])
    finally:
        processes.end(lambda: processes.members([leader]), grace=1.0, deadline=10.0)
        short.unlink()


def test_two_commands_at_once_make_one_cluster_beside_others_and_it_ends_alone(
    yard: Yard, foreign: frozenset[processes.ProcessId], fresh: Yard
) -> None:
    fresh.write_cluster("name: {name}\nbackend: local\nauth: none\nhead: {{cpus: 1, memory: 1GiB}}\n")
    both = [fresh.start("cluster.up"), fresh.start("cluster.up")]
    printed = [command.communicate(timeout=200)[0] for command in both]
    assert [command.returncode for command in both] == [0, 0], printed
    assert sum(process.info["name"] == "raylet" for process in fresh.processes()) == 1
    assert fresh.address() != yard.address()
    assert set(fresh.states()) == {"head"}
    # A job can be submitted the moment that up returns.
    answer = httpx.post(f"{fresh.address()}/api/jobs/", json={"entrypoint": "true"}, timeout=30)
    assert answer.status_code == 200, answer.text

    # `down` also ends what the killed keeper of a head leaves.
    psutil.Process(fresh.keeper("head").pid).kill()
    fresh.run("cluster.down", "--end-runs")
    assert fresh.leftovers() == []
    assert yard.states() == {"head": "up", "gpu-0": "up", "gpu-1": "up"}
    assert len(foreign) > 5
    assert [process for process in foreign if not processes.alive(process)] == []
