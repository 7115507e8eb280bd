"""Commands that connect to Ray themselves: they are let in, and what they start there is like the task itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real import matrix
from tests.real.jobs import newest, write_job
from tests.real.yard import Yard
from trainyard.seams import processes

TOKEN = "b" * 64


@pytest.fixture
def token_in_environment() -> Iterator[str]:
    """Give the dashboard's address of a head that has its token as pods have theirs: in a variable alone."""
    temp = Path(f"/tmp/pod-{os.getpid()}")
    gcs, dashboard, client = processes.free_ports(3)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    environment |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    command = ["ray", "start", "--head", f"--port={gcs}", "--num-cpus=2"]
    command += [f"--dashboard-port={dashboard}", f"--ray-client-server-port={client}", f"--temp-dir={temp}"]
    command += ["--dashboard-agent-listen-port=0", "--object-store-memory=100000000", "--disable-usage-stats"]
    child = subprocess.Popen(command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
    leader = processes.ProcessId(child.pid, "")
    try:
        assert child.wait(timeout=90) == 0
        yield f"http://127.0.0.1:{dashboard}"
    finally:
        processes.end(lambda: processes.members([leader]), grace=1.0, deadline=10.0)
        shutil.rmtree(temp, ignore_errors=True)


def test_a_command_connects_where_nodes_have_their_token_in_a_variable(token_in_environment: str, fresh: Yard) -> None:
    file = fresh.home / "token"
    file.write_text(TOKEN)
    existing = f"existing: {{{{address: '{token_in_environment}', token_file: '{file}'}}}}\n"
    fresh.write_cluster(f"name: {{name}}\nbackend: existing\n{existing}")
    program = """
        import os, ray
        assert "RAY_AUTH_TOKEN" not in os.environ
        ray.init()
        print("answered", ray.get(ray.remote(lambda: 7).remote()))
        """
    write_job(fresh, "connects", "command: [python, connect.py]\n", connect=program)
    fresh.run("train.dispatch", "connects", "--skip-smoke")
    assert "answered 7\n" in (newest(fresh) / "logs" / "connects.1.log").read_text()


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_what_a_command_starts_through_ray_is_like_under_ray_job_submit(yard: Yard, installer: str) -> None:
    directory = matrix.write(yard, installer)
    status = yard.json("train.dispatch", directory.name, "--skip-smoke", expect=1)
    assert status["tasks"][0]["attempts"][0]["exit_code"] == 3
    ours = matrix.found((newest(yard) / "logs" / f"{directory.name}.1.log").read_text())
    assert ours == {place: [matrix.EVERYWHERE] * (1 if place == "driver" else 3) for place in matrix.PLACES}
    environment = {**yard.env(), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(yard.state / "token")}
    submit = ["ray", "job", "submit", "--address", yard.address(), "--working-dir", "."]
    submitted = subprocess.run(
        [*submit, "--runtime-env", "runtime_env.yaml", "--", "python", "scripts/probe.py"],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert "exit code 3" in submitted.stdout + submitted.stderr
    assert matrix.found(submitted.stdout) == ours
