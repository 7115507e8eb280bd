"""How the hosts of a lab are, what will break there, and what mends it; hosts are broken by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.bed import microk8s, programs
from tests.bed.engine import BedEngine
from tests.bed.hosts import Host
from tests.bed.places import need
from tests.real import lab as labs
from tests.real.yard import Yard

pytestmark = [pytest.mark.docker, pytest.mark.kubernetes, pytest.mark.microk8s, pytest.mark.timeout(900)]
ENDS_SOON = "PYTHONPATH=/opt/bed python3 -c 'from standin import certs; certs.server(days=3)'"


@dataclass(frozen=True)
class Lab:
    hosts: list[Host]
    yard: Yard
    registry: str


@pytest.fixture(scope="module")
def lab(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Give a control plane and a worker, and the Ray cluster on them."""
    need(programs.missing())
    home = tmp_path_factory.mktemp("lab")
    with microk8s.bare_hosts(engine, tmp_path_factory.mktemp("hosts"), count=2) as made:
        document = labs.cluster_file(engine, home, made, workers=1, spread="required")
        yard = labs.place_to_work(home, made, document)
        assert {host["state"] for host in yard.json("cluster.status")["hosts"]} == {"not joined"}
        yard.run("cluster.up", seconds=600)
        yield Lab(made, yard, document["registry"]["address"])


def test_status_shows_every_host_and_what_is_on_it(lab: Lab) -> None:
    document = lab.yard.json("cluster.status")
    on = {node["host"]: [node["name"]] for node in document["nodes"]}
    assert document["hosts"] == [
        {
            "name": host.ip,
            "address": host.ip,
            "role": role,
            "state": "ready",
            "version": "v1.34.2",
            "voter": voter,
            "certificate": certificate,
            "certificate_days": days,
            "nodes": on[host.name],
            "gpus": 0,
            "seen": "",
        }
        for host, (role, voter, certificate, days) in zip(
            lab.hosts,
            [("control plane", True, "front-proxy-client.crt", 365), ("worker", None, "kubelet.crt", 3650)],
            strict=True,
        )
    ]


def test_doctor_finds_what_will_break_and_mends_it(lab: Lab) -> None:
    yard, (first, second) = lab.yard, lab.hosts
    assert yard.json("cluster.doctor") == {"name": "lab", "ok": True, "findings": []}
    first.shell(ENDS_SOON)
    first.run("snap", "refresh", "--unhold", "microk8s")
    second.shell(f"rm -r /var/snap/microk8s/current/args/certs.d/{lab.registry}")
    # The limit is the machine's: of this host alone it is a file.
    second.shell("echo 65536 > /run/limit && mount --bind /run/limit /proc/sys/fs/aio-max-nr")
    found = yard.json("cluster.doctor", expect=5)["findings"]
    print(yard.run("cluster.doctor", "--fix").stderr)
    assert [(finding["subject"], finding["message"]) for finding in found] == [
        (first.ip, "server.crt ends in 3 days: nothing renews it, and then nobody gets in"),
        ("Prepare 2 hosts", f"{second.ip}: lacks kernel limits, at which MicroK8s stops, or names of the others"),
        (
            "Install MicroK8s 1.34/stable on 2 hosts",
            f"{first.ip}: not installed, or not held: snapd refreshes it at any hour",
        ),
        (f"Every host pulls from {lab.registry}", f"{second.ip}: does not know the registry"),
    ]
    assert all(finding["fixable"] for finding in found)
    assert yard.json("cluster.doctor")["ok"]


def test_gpus_are_a_fact_of_hosts_and_need_a_driver(lab: Lab) -> None:
    yard, (first, second) = lab.yard, lab.hosts
    one, two = ("cluster.plan", "--set", "workers.0.gpus=1"), ("cluster.plan", "--set", "workers.0.gpus=2")
    microk8s.give_gpus(first, 1, driver=False)
    refused = yard.json(*one, expect=3)["problems"]
    microk8s.give_gpus(second, 1)
    assert refused == [
        {"where": first.ip, "message": "has 1 NVIDIA GPU and no driver: sudo ubuntu-drivers install --gpgpu"}
    ]
    microk8s.give_gpus(first, 0)
    refused = yard.json(*two, expect=3)["problems"]
    assert [problem["message"] for problem in refused] == [
        "have 1 GPU together, and the nodes of the cluster ask for 2"
    ]
    steps = {step["title"]: step["state"] for step in yard.json(*one)["steps"]}
    assert steps["Enable nvidia"] == "would"
    assert [host["gpus"] for host in yard.json("cluster.status")["hosts"]] == [0, 1]


def test_a_dead_host_is_a_row_beside_whole_ones(lab: Lab) -> None:
    yard, (first, second) = lab.yard, lab.hosts
    second.power_off()
    alive, dead = yard.json("cluster.status")["hosts"]
    assert (alive["name"], alive["state"], alive["voter"], alive["certificate_days"]) == (first.ip, "ready", True, 365)
    assert (dead["name"], dead["state"], dead["version"]) == (second.ip, "unreachable", None)
    unreachable = f"{second.ip} cannot be reached by SSH on port 22"
    assert dead["seen"].startswith(f"{unreachable}: ")
    found = yard.json("cluster.doctor", expect=5)["findings"]
    assert (found[0]["subject"], found[0]["message"]) == (second.ip, unreachable)
    first.power_off()
    status = yard.json("cluster.status")
    assert (status["state"], [host["state"] for host in status["hosts"]]) == ("down", ["unreachable"] * 2)
