"""Bare hosts of the bed, for a user with a login and Helm: a cluster file, a place to work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bed import chart, hosts, programs, publishing
from tests.bed.engine import BedEngine
from tests.bed.hosts import Host
from tests.bed.places import free_port
from tests.real.kube import RAY_IMAGE
from tests.real.yard import Yard


def kuberay(home: Path, **more: Any) -> dict[str, Any]:
    """Return the section `kuberay` for small hosts, with a chart that needs no internet."""
    chart.write(home / "chart")
    return {
        "operator": {"chart": str(home / "chart")},
        "requests": {"cpus": 0.1, "memory": "128MiB"},
        **more,
    }


def cluster_file(
    engine: BedEngine, home: Path, made: Sequence[Host], *, workers: int, **more: Any
) -> dict[str, Any]:
    """Return a cluster file for these hosts, with Ray's image in a registry of the bed.

    `more` is added to the section `kuberay`.
    """
    address = f"{engine.bridge_ip}:{free_port()}"
    publishing.publish(engine, address, RAY_IMAGE, owner=hosts.this_process())
    node = {"cpus": 1, "memory": "1GiB"}
    return {
        "name": "lab",
        "backend": "microk8s",
        "image": f"{address}/{RAY_IMAGE}",
        "registry": {"address": address, "insecure": True},
        "head": node,
        "workers": [{"name": "worker", "count": workers, **node}],
        "microk8s": {"hosts": [{"address": host.ssh} for host in made]},
        "kuberay": kuberay(home, **more),
    }


def place_to_work(
    home: Path, made: Sequence[Host], document: dict[str, Any], **environ: str
) -> Yard:
    """Give a place with this cluster file, from which these hosts can be reached."""
    (home / "clusters").mkdir()
    (home / "clusters" / "lab.yaml").write_text(json.dumps(document, indent=1))
    path = f"{programs.commands()}:{hosts.environ(made[0].home)['PATH']}"
    return Yard(home, cluster="lab", environ={"HOME": str(made[0].home), "PATH": path, **environ})
