"""ado's own `--remote` against clusters of Trainyard's: an ado of the user's submits its commands.

The commands that are run need no store: ado takes no SQLite for `--remote`, and its MySQL is not to
be had here. One that does need the store fails, and its exit code comes back.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.bed import images
from tests.bed.engine import BedEngine
from tests.bed.kubernetes import KubeBed
from tests.large.test_ado import NODES, TRUST, write
from tests.real import kube as kubernetes
from tests.real.yard import Yard
from trainyard import versions
from trainyard.paths import shipped

UV = str(Path(sys.executable).with_name("uv"))
PACKAGES = ["ado-core==2.3.0", "typer==0.24.0", "click==8.3.1"]
# ado asks the service for the port of clusterUrl, which is that of its own end as well.
PORT = 8265
# A server that refuses connections, wherever the command runs.
STORE = {
    "project": "pole",
    "metadataStore": {
        "scheme": "mysql+pymysql",
        "host": "127.0.0.1",
        "port": 1,
        "database": "pole",
        "user": "pole",
        "password": "pole",
    },
}


@dataclass(frozen=True)
class Laptop:
    """A directory with ado in a virtual environment, and the files of jobs/ado."""

    home: Path
    environ: dict[str, str]

    def ado(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.home / "venv" / "bin" / "ado", "-c", "context.yaml", *words],
            cwd=self.home,
            env=self.environ,
            text=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=600,
            check=False,
        )


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Laptop:
    """Install ado and Ray as its user does, without Trainyard and without the experiments."""
    home = tmp_path_factory.mktemp("laptop")
    bin_of_venv = home / "venv" / "bin"
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, home / "venv"], check=True)
    install = [UV, "pip", "install", "-q", "--python", str(bin_of_venv / "python")]
    subprocess.run([*install, "uv", f"ray[default]=={versions.RAY}", *PACKAGES], check=True)

    shutil.copytree(shipped("jobs") / "ado", home, dirs_exist_ok=True)
    (home / "context.yaml").write_text(json.dumps(STORE))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return Laptop(
        home,
        {
            **kept,
            "PATH": f"{bin_of_venv}:{kept['PATH']}",
            "HOME": str(home),
            "COLUMNS": "200",
            "RAY_AUTH_MODE": "token",
        },
    )


def remotely(laptop: Laptop, execution: dict[str, Any], **context: Any) -> None:
    """List the experiments by `ado --remote`, and run a command that needs the store."""
    document = {"executionType": {"type": "cluster", **execution}, **context}
    (laptop.home / "remote.yaml").write_text(json.dumps(document))

    assert "balance" not in laptop.ado("get", "experiments").stdout
    listed = laptop.ado("--remote", "remote.yaml", "get", "experiments")
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert re.search(r"custom_experiments\s+.*balance", listed.stdout), listed.stdout

    failed = laptop.ado("--remote", "remote.yaml", "get", "spaces")
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert "Can't connect to MySQL server" in failed.stdout + failed.stderr


def opened(lab: Yard, laptop: Laptop) -> str:
    """Give the laptop the token of a cluster; return its dashboard's address."""
    printed = lab.json("cluster.open", "--dry")
    asked = printed["token_command"] or f"cat {printed['token_file']}"
    laptop.environ["RAY_AUTH_TOKEN"] = subprocess.run(
        ["sh", "-c", asked],
        env={**os.environ, **lab.environ},
        text=True,
        capture_output=True,
        check=True,
    ).stdout.strip()
    return str(printed["address"])


def test_ado_submits_to_processes_of_this_machine(fresh: Yard, laptop: Laptop) -> None:
    write(fresh, backend="local")
    with fresh.up():
        remotely(
            laptop,
            {"clusterUrl": opened(fresh, laptop)},
            packages={"fromPyPI": PACKAGES, "fromSource": ["experiments"]},
        )


def test_ado_submits_to_containers(fresh: Yard, engine: BedEngine, laptop: Laptop) -> None:
    fresh.environ.update(engine.environ())
    write(fresh, backend="compose", image=images.RAY, env=TRUST)
    with fresh.up():
        remotely(
            laptop,
            {"clusterUrl": opened(fresh, laptop)},
            packages={"fromPyPI": PACKAGES, "fromSource": ["experiments"]},
        )


def test_ado_submits_to_pods_through_its_own_port_forward(
    kube: KubeBed, operator: None, tmp_path: Path, laptop: Laptop
) -> None:
    images.ensure_ado(kube.engine)
    kube.publish(images.ADO)
    lab = kubernetes.yard(kube, tmp_path, "ado")
    kubernetes.write(kube, lab, NODES, namespace="ado", image=images.ADO)
    with lab.up("--purge"):
        # ado starts the user's kubectl.
        laptop.environ["KUBECONFIG"] = str(kube.kubeconfig)
        laptop.environ["PATH"] += f":{kube.environ()['PATH']}"
        forward = {"namespace": "ado", "serviceName": "ado-head-svc", "localPort": PORT}
        opened(lab, laptop)
        remotely(
            laptop,
            {"clusterUrl": f"http://127.0.0.1:{PORT}", "portForward": forward},
            packages={"fromSource": ["experiments"]},
        )
