"""Other people's Ray on the same machine is never touched."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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


def test_up_and_down_leave_a_foreign_ray_alone(foreign: frozenset[processes.ProcessId], fresh: Yard) -> None:
    fresh.write_cluster("name: {name}\nbackend: local\nhead: {{cpus: 1, memory: 1GiB}}\n")
    fresh.run("cluster.up")
    names = {node["name"] for node in fresh.json("cluster.status")["nodes"]}
    fresh.run("cluster.down")
    assert names == {"head"}
    assert fresh.leftovers() == []
    assert len(foreign) > 5
    assert [process for process in foreign if not processes.alive(process)] == []
