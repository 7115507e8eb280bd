"""No request without the token is accepted, and the token is shown nowhere."""

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

pytestmark = pytest.mark.core

CALLS = (
    ("GET", "/api/version"),
    ("GET", "/api/jobs/"),
    ("POST", "/api/jobs/"),
    ("GET", "/api/packages/gcs/_ray_pkg_0000000000000000.zip"),
    ("PUT", "/api/packages/gcs/_ray_pkg_0000000000000000.zip"),
    ("GET", "/api/v0/nodes?limit=10"),
    ("GET", "/api/v0/logs?node_id=0"),
    ("GET", "/api/v0/logs/file?node_id=0&filename=raylet.out"),
    ("GET", "/api/v0/logs/stream?node_id=0&filename=raylet.out"),
)


@pytest.mark.parametrize(
    ("headers", "code"), [({}, 401), ({"Authorization": f"Bearer {'0' * 64}"}, 403)]
)
def test_the_dashboard_refuses_a_missing_or_wrong_token(
    yard: Yard, headers: dict[str, str], code: int
) -> None:
    with httpx.Client(base_url=yard.address(), timeout=20) as http:
        for method, path in CALLS:
            assert (
                http.request(method, path, headers=headers, json={"entrypoint": "true"}).status_code
                == code
            ), path
        jobs = http.get("/api/jobs/", headers={"Authorization": f"Bearer {yard.token()}"}).json()
    assert not any(job["entrypoint"] == "true" for job in jobs)


def test_a_node_without_the_token_cannot_join(yard: Yard, tmp_path: Path) -> None:
    ports = json.loads((yard.state / "cluster.json").read_text())["ports"]
    environment = {
        **_no_token(),
        "RAY_AUTH_MODE": "disabled",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    }

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


def test_commands_report_that_the_cluster_rejects_a_wrong_token(yard: Yard, fresh: Yard) -> None:
    (fresh.home / "wrong").write_text("0" * 64)
    fresh.write_cluster(
        f"name: {{name}}\nbackend: existing\nexisting: {{{{address: '{yard.address()}', "
        "token_file: ../wrong}}\n"
    )
    refused = fresh.run("cluster.status", expect=6)
    assert "the cluster rejected the token" in refused.stderr
    left = fresh.run("cluster.down")
    assert (
        "whether killed runs left something is unknown: the cluster rejected the token"
        in left.stderr
    )


def _no_token() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}


def _everything_public(process: psutil.Process) -> str:
    """Return a process's command line and environment from /proc; empty once it has ended."""
    try:
        environ = Path(f"/proc/{process.pid}/environ").read_bytes().decode(errors="replace")
        return " ".join([*process.cmdline(), environ])
    except (psutil.Error, OSError):
        return ""
