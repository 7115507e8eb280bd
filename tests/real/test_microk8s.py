"""A lab of bare hosts, reached by SSH: made a Kubernetes, trained on, and given back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bed import chart, hosts, microk8s, programs, publishing
from tests.bed.engine import BedEngine
from tests.bed.hosts import Host
from tests.bed.places import free_port, need
from tests.real.jobs import write_job
from tests.real.yard import Yard

pytestmark = [pytest.mark.docker, pytest.mark.kubernetes, pytest.mark.breaking, pytest.mark.timeout(900)]
RAY_IMAGE = "trainyard-bed/ray:1"
WHERE = """
    command: [hostname]
    matrix: {i: [0, 1, 2]}
    env: {I: "{i}"}
    resources: {cpus: 1}
    together: true
"""


def lab(engine: BedEngine, home: Path, made: list[Host], **section: Any) -> Yard:
    """Give a place to work in as somebody who has SSH to these hosts, and Helm."""
    address = f"{engine.bridge_ip}:{free_port()}"
    publishing.publish(engine, address, RAY_IMAGE, owner=hosts.this_process())
    chart.write(home / "chart")
    document = {
        "name": "lab",
        "backend": "microk8s",
        "image": f"{address}/{RAY_IMAGE}",
        "registry": {"address": address, "insecure": True},
        "head": {"cpus": 1, "memory": "1GiB"},
        "workers": [{"name": "worker", "count": 2, "cpus": 1, "memory": "1GiB"}],
        "microk8s": {"hosts": [{"address": host.ssh} for host in made], **section},
        "kuberay": {
            "operator": {"chart": str(home / "chart")},
            "requests": {"cpus": 0.1, "memory": "128MiB"},
            "spread": "required",
        },
    }
    (home / "clusters").mkdir()
    (home / "clusters" / "lab.yaml").write_text(json.dumps(document, indent=1))
    path = f"{programs.commands()}:{hosts.environ(made[0].home)['PATH']}"
    return Yard(home, cluster="lab", environ={"HOME": str(made[0].home), "PATH": path})


@pytest.fixture(scope="module")
def three(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    need(programs.missing())
    with microk8s.bare_hosts(engine, tmp_path_factory.mktemp("hosts"), count=3) as made:
        yield made


def test_three_bare_hosts_become_a_cluster_that_trains(
    engine: BedEngine, three: list[Host], tmp_path_factory: pytest.TempPathFactory
) -> None:
    yard = lab(engine, tmp_path_factory.mktemp("lab"), three)
    planned = yard.json("cluster.plan")["steps"]
    assert [step["title"] for step in planned if step["state"] == "would"][:2] == [
        "Prepare 3 hosts",
        "Install MicroK8s 1.34/stable on 3 hosts",
    ]
    print(yard.run("cluster.up", seconds=600).stderr)
    assert not any(step["changed"] for step in yard.json("cluster.up")["steps"])
    assert yard.json("smoke.run")["ok"]
    write_job(yard, "where", WHERE)
    yard.run("train.dispatch", "where", "--skip-smoke")
    assert len({task["attempts"][0]["node"] for task in yard.json("train.status")["tasks"]}) == 3
    before = [host.run("cat", "/etc/hosts").stdout.count("trainyard") for host in three]
    assert before == [2, 2, 2]
    print(yard.run("cluster.down", "--purge").stderr)
    for host in three:
        assert "no matching snaps" in host.shell("snap list microk8s 2>&1 || true").stdout
        assert "trainyard" not in host.run("cat", "/etc/hosts").stdout
        assert host.run("ls", "/etc/sysctl.d", "/var/snap/microk8s", check=False).stdout.count("trainyard") == 0
    assert yard.json("cluster.plan")["steps"] == planned
