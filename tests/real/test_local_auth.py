"""Nobody gets in without the token, and the token is nowhere to be seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest

from tests.real.yard import Yard
from trainyard.backends.local.node_processes import LAUNCHER

CALLS = {
    "version": ("GET", "/api/version"),
    "jobs": ("GET", "/api/jobs/"),
    "submit": ("POST", "/api/jobs/"),
    "package": ("GET", "/api/packages/gcs/_ray_pkg_0000000000000000.zip"),
    "upload": ("PUT", "/api/packages/gcs/_ray_pkg_0000000000000000.zip"),
    "nodes": ("GET", "/api/v0/nodes?limit=10"),
    "logs": ("GET", "/api/v0/logs?node_id=0"),
    "log file": ("GET", "/api/v0/logs/file?node_id=0&filename=raylet.out"),
    "log stream": ("GET", "/api/v0/logs/stream?node_id=0&filename=raylet.out"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("token", [None, "0" * 64], ids=["without a token", "with another token"])
def test_the_dashboard_refuses(yard: Yard, call: str, token: str | None) -> None:
    method, path = CALLS[call]
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = httpx.request(method, yard.address() + path, headers=headers, json={"entrypoint": "true"}, timeout=20)
    assert answer.status_code == (403 if token else 401)
    assert not _has_jobs(yard)


def test_ray_itself_refuses_whoever_has_no_token(yard: Yard) -> None:
    ports = json.loads((yard.state / "cluster.json").read_text())["ports"]
    ask = "import sys; from ray._raylet import GcsClient; print(GcsClient(address=sys.argv[1]).get_all_node_info())"
    done = subprocess.run(
        [sys.executable, "-c", ask, f"127.0.0.1:{ports['gcs']}"],
        env={**_no_token(), "RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "InvalidAuthToken" in done.stderr


def test_a_node_without_the_token_cannot_join(yard: Yard, tmp_path: Path) -> None:
    ports = json.loads((yard.state / "cluster.json").read_text())["ports"]
    environment = {**_no_token(), "RAY_AUTH_MODE": "disabled", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    join = ["start", f"--address=127.0.0.1:{ports['gcs']}", "--node-name=intruder", "--num-cpus=1"]
    done = subprocess.run(
        [sys.executable, str(LAUNCHER), *join, f"--temp-dir={tmp_path}"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    assert "InvalidAuthToken" in done.stderr
    assert set(yard.states()) == {"head", "gpu-0", "gpu-1"}


def test_the_token_is_in_no_command_line_and_in_no_environment(yard: Yard) -> None:
    token = yard.token()
    found = yard.processes()
    assert len(found) > 10
    assert [one for one in found if token in _everything_public(one)] == []


def test_the_token_is_in_no_log(yard: Yard) -> None:
    token = yard.token().encode()
    files = [path for root in (yard.state, yard.temp) for path in root.rglob("*") if path.is_file()]
    assert [path for path in files if path.name != "token" and token in path.read_bytes()] == []


def test_commands_say_what_is_wrong_when_the_token_is(yard: Yard, fresh: Yard) -> None:
    (fresh.home / "wrong").write_text("0" * 64)
    fresh.write_cluster(
        f"name: {{name}}\nbackend: existing\nexisting: {{{{address: '{yard.address()}', token_file: ../wrong}}}}\n"
    )
    refused = fresh.run("cluster.status", expect=6)
    assert "the cluster refused our token" in refused.stderr


def _has_jobs(yard: Yard) -> bool:
    headers = {"Authorization": f"Bearer {yard.token()}"}
    jobs = httpx.get(f"{yard.address()}/api/jobs/", headers=headers, timeout=20).json()
    return any(job["entrypoint"] == "true" for job in jobs)


def _no_token() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}


def _everything_public(process: psutil.Process) -> str:
    """Return what /proc shows of a process."""
    try:
        environ = Path(f"/proc/{process.pid}/environ").read_bytes().decode(errors="replace")
        return " ".join([*process.cmdline(), environ])
    except (psutil.Error, OSError):
        return ""
