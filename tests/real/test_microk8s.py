"""A lab of bare hosts, reached by SSH: made a Kubernetes, trained on, broken, mended, given back.

Each test needs the one before.
"""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.bed import images, microk8s, programs
from tests.bed.engine import BedEngine
from tests.bed.hosts import Host, each
from tests.bed.kubernetes import wait
from tests.bed.places import free_port, need
from tests.real import lab as labs
from tests.real.forwarded import assert_forwarded
from tests.real.yard import Yard
from trainyard.paths import shipped

pytestmark = [pytest.mark.microk8s, pytest.mark.timeout(900)]
API_SERVICE = "10.152.183.1"
KUBELET_ARGUMENTS = "/var/snap/microk8s/current/args/kubelet"
ENDS_SOON = "PYTHONPATH=/opt/bed python3 -c 'from standin import certs; certs.server(days=3)'"


@dataclass(frozen=True)
class Lab:
    """Three bare hosts, and a place to work with the shipped cluster file for these hosts."""

    hosts: list[Host]
    yard: Yard
    registry: str


@pytest.fixture(scope="module")
def lab(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    need(programs.missing())
    images.ensure_ray_root(engine)
    registry = f"{engine.bridge_ip}:{free_port()}"
    with microk8s.bare_hosts(engine, tmp_path_factory.mktemp("hosts"), count=3) as made:
        yard = _place_to_work(tmp_path_factory.mktemp("lab"), engine, made, registry)
        try:
            yield Lab(made, yard, registry)
        finally:
            yard.run("registry.down", "--purge")
            # dockerd looks for CAs only in this directory of the machine.
            shutil.rmtree(f"/etc/docker/certs.d/{registry}", ignore_errors=True)


def _place_to_work(home: Path, engine: BedEngine, made: list[Host], registry: str) -> Yard:
    """Give the shipped cluster file with the bed's hosts, registry, base image and chart.

    Nodes request little, since the bed's hosts are small.
    """
    document: dict[str, Any] = yaml.safe_load((shipped("clusters") / "microk8s.yaml").read_text())
    login = {"username": "ann", "password_env": "REGISTRY_PASSWORD"}
    document |= {
        "name": "lab",
        "registry": {"address": registry, "image": images.REGISTRY, **login},
        "build": {"base": images.RAY_ROOT, "network": "host"},
        "microk8s": {"hosts": [{"address": host.ssh} for host in made]},
        "kuberay": labs.kuberay(home, spread="required"),
    }
    return labs.place_to_work(
        home, made, document, **engine.environ(), REGISTRY_PASSWORD="a secret"
    )


@pytest.mark.lifecycle
def test_three_bare_hosts_become_a_cluster(lab: Lab) -> None:
    yard = lab.yard
    yard.run("registry.up")
    yard.run("registry.trust")
    refused = yard.run("cluster.up", expect=6).stderr
    assert f"error: registry {lab.registry} does not have the current version of image" in refused
    assert all(
        "no matching snaps" in host.shell("snap list microk8s 2>&1 || true").stdout
        for host in lab.hosts
    )
    pushed = yard.json("image.push", seconds=600)["reference"]
    yard.run("cluster.new", "new", "--backend", "microk8s", *(host.ssh for host in lab.hosts))
    new = yard.json("cluster.plan", "-f", "new")["steps"]
    assert [step["state"] for step in new if step["title"] in ("Prepare 3 hosts", "KubeRay")] == [
        "would",
        "after",
    ]
    assert _planned(yard)[:2] == ["Prepare 3 hosts", "Install MicroK8s 1.34/stable on 3 hosts"]
    print(yard.run("cluster.up", seconds=600).stderr)
    assert not any(step["changed"] for step in yard.json("cluster.up")["steps"])
    # DNS was enabled from the start, on all hosts. Enabling it later would restart every kubelet
    # and the API server.
    assert "Restarting" not in lab.hosts[0].run("cat", "/var/log/microk8s.launch.log").stdout

    for host in lab.hosts:
        assert host.run("grep", "-c", "^--cluster-d", KUBELET_ARGUMENTS).stdout == "2\n"

    # No token is left with which another host could join.
    tokens = (
        lab.hosts[0].run("cat", "/var/snap/microk8s/current/credentials/cluster-tokens.txt").stdout
    )
    assert tokens == ""
    nodes = yard.json("cluster.status")["nodes"]
    assert {node["state"] for node in nodes} == {"up"}
    assert len({node["host"] for node in nodes}) == 3
    assert [host.run("cat", "/etc/hosts").stdout.count("trainyard") for host in lab.hosts] == [
        2,
        2,
        2,
    ]

    verified = yard.json("image.verify")["hosts"]
    assert [(host["reference"], host["ok"]) for host in verified] == [(pushed, True)] * 3


def test_pods_of_every_host_look_names_up(lab: Lab) -> None:
    # All hosts but the first joined minutes ago, and got their DNS settings from the first.
    name = "kubernetes.default.svc.cluster.local"
    assert (
        each(lambda host: microk8s.look_up(lab.hosts[0], host.name, name), lab.hosts)
        == [API_SERVICE] * 3
    )


def test_status_shows_the_facts_of_every_host_and_its_nodes(lab: Lab) -> None:
    document = lab.yard.json("cluster.status")
    on = {node["host"]: [node["name"]] for node in document["nodes"]}
    # The certificate that ends first is shown. All are made at about the same second: which is
    # first varies.
    first, *others = [host.pop("certificate") for host in document["hosts"]]
    assert first in ("server.crt", "front-proxy-client.crt")
    assert set(others) <= {"kubelet.crt", "proxy.crt"}
    worker = ("worker", None, 3650)

    assert document["hosts"] == [
        {
            "name": host.ip,
            "address": host.ip,
            "role": role,
            "state": "ready",
            "version": "v1.34.2",
            "voter": voter,
            "certificate_days": days,
            "nodes": on[host.name],
            "gpus": 0,
            "seen": "",
            "host": host.name,
        }
        for host, (role, voter, days) in zip(
            lab.hosts, [("control plane", True, 365), worker, worker], strict=True
        )
    ]


@pytest.mark.lifecycle
def test_cartpole_trains_on_every_host(lab: Lab) -> None:
    yard = lab.yard
    # Without --skip-smoke: the smoke test runs before the job.
    yard.run("train.dispatch", "cartpole")
    run = next(yard.results.glob("cartpole-*"))
    assert len({task["attempts"][0]["node"] for task in yard.json("train.status")["tasks"]}) == 3
    assert {path.name for path in (run / "outputs").glob("seed=*")} == {
        f"seed={seed}" for seed in range(4)
    }


def test_shells_and_logs_reach_hosts_and_nodes(lab: Lab) -> None:
    yard, last = lab.yard, lab.hosts[-1].ip
    assert (
        yard.run("cluster.shell", last, "--command", "hostname; exit 7", expect=7).stdout
        == "host-3\n"
    )
    assert yard.run("cluster.shell", "host-3", "--command", "hostname").stdout == "host-3\n"
    # A node's shell is reached through the first control plane: this machine needs no kubectl.
    assert yard.json("cluster.shell")["command"][0] == "ssh"
    assert "-head-" in yard.run("cluster.shell", "--command", "hostname; exit 7", expect=7).stdout
    assert_forwarded(yard, "head")
    lines = yard.run("cluster.logs", last, "--no-follow").stdout.splitlines()
    assert len(lines) == 100
    assert all(line.startswith(f"{last} snap | ") for line in lines)
    assert any(" microk8s.daemon-kubelite[" in line for line in lines)
    assert {
        line.split()[0]
        for line in yard.run("cluster.logs", "head", "--no-follow").stdout.splitlines()
    } == {"head"}
    unknown = yard.run("cluster.shell", "haed", expect=2).stderr
    assert "has no node 'haed'; did you mean 'head'?" in unknown
    assert all(host.ip in unknown for host in lab.hosts)


def test_commands_of_microk8s_that_do_nothing_exit_0(lab: Lab) -> None:
    first, second, _ = lab.hosts
    for words, message in (
        (("status",), "Please use the control plane node."),
        (("config",), "Please use the microk8s config on the master."),
        (("kubectl", "get", "nodes"), "Please use the microk8s kubectl on the master."),
        (("stop",), "Use 'snap stop microk8s' to stop services on this node."),
    ):
        assert message in microk8s.run(second, *words).stdout, words
    assert "Reset is applicable for single node clusters" in microk8s.run(first, "reset").stdout
    assert microk8s.run(first, "enable", "dns").stdout == "Addon core/dns is already enabled\n"


def test_doctor_finds_what_will_break_and_mends_it(lab: Lab) -> None:
    yard, (first, second, _) = lab.yard, lab.hosts
    assert yard.json("cluster.doctor") == {"name": "lab", "ok": True, "findings": []}
    first.shell(ENDS_SOON)
    # Plant the database's entry for a control plane that was lost for good.
    ghost = f"{first.ip.rpartition('.')[0]}.250"
    add = f"from standin import store; store.add('{ghost}:19001'); store.write_files()"
    first.run("env", "PYTHONPATH=/opt/bed", "python3", "-c", add)
    first.run("snap", "refresh", "--unhold", "microk8s")
    second.shell(f"rm -r /var/snap/microk8s/current/args/certs.d/{lab.registry}")
    # As on a host that joined while `enable dns` was running.
    second.shell(f"sed -i /--cluster-d/d {KUBELET_ARGUMENTS}")
    # The real limit is the whole machine's: this host alone sees a file in its place.
    second.shell("echo 65536 > /run/limit && mount --bind /run/limit /proc/sys/fs/aio-max-nr")
    found = yard.json("cluster.doctor", expect=5)["findings"]
    print(yard.run("cluster.doctor", "--fix").stderr)

    assert [(finding["subject"], finding["message"]) for finding in found] == [
        (first.ip, "server.crt ends in 3 days: nothing renews it, and then no user gets in"),
        (ghost, "a dead member of dqlite that is no host of the file: no control plane may join"),
        ("Prepare 3 hosts", f"{second.ip}: its kernel limits are too low for MicroK8s"),
        (
            "Install MicroK8s 1.34/stable on 3 hosts",
            f"{first.ip}: not held: snapd refreshes it at any hour",
        ),
        ("Pods of every host look names up", f"{second.ip}: its kubelet knows no DNS"),
        (
            f"Every host knows the registry {lab.registry}",
            f"{second.ip}: does not know the registry",
        ),
    ]

    assert all(finding["fixable"] for finding in found)
    assert yard.json("cluster.doctor")["ok"]


def test_dns_restarts_every_kubelet_where_one_lacks_it(lab: Lab) -> None:
    first, second, _ = lab.hosts
    microk8s.run(first, "kubectl", "delete", "deployment/coredns", "-n", "kube-system")
    assert "Restarting" not in microk8s.run(first, "enable", "dns").stdout
    microk8s.run(first, "kubectl", "delete", "deployment/coredns", "-n", "kube-system")
    for host in (first, second):
        host.shell(f"sed -i /--cluster-d/d {KUBELET_ARGUMENTS}")
    assert "Restarting kubelet\n" in microk8s.run(first, "enable", "dns").stdout
    assert second.run("grep", "-c", "^--cluster-d", KUBELET_ARGUMENTS).stdout == "2\n"
    microk8s.wait_ready(first, *(host.name for host in lab.hosts))
    lab.yard.run("cluster.up")


def test_gpus_are_a_fact_of_hosts_and_need_a_driver(lab: Lab) -> None:
    yard, (first, second, _) = lab.yard, lab.hosts
    asks = ("cluster.plan", "--set", "workers.0.gpus=1")
    microk8s.give_gpus(first, 1, driver=False)

    assert yard.json(*asks, expect=3)["problems"] == [
        {
            "where": first.ip,
            "message": "has 1 NVIDIA GPU and no driver: sudo ubuntu-drivers install --gpgpu",
        },
        {
            "where": "all hosts",
            "message": "have 1 GPU together, and the nodes of the cluster ask for 2",
        },
    ]

    microk8s.give_gpus(first, 0)
    microk8s.give_gpus(second, 2)
    steps = {step["title"]: step["state"] for step in yard.json(*asks)["steps"]}
    assert steps["Enable nvidia"] == "would"
    yard.run("cluster.doctor", "--fix", "--set", "workers.0.gpus=1")
    assert {step["title"]: step["state"] for step in yard.json(*asks)["steps"]}[
        "Enable nvidia"
    ] == "already"
    assert [host["gpus"] for host in yard.json("cluster.status")["hosts"]] == [0, 2, 0]


def test_microk8s_own_registry_is_on_every_host_where_it_is_asked_for(lab: Lab) -> None:
    lab.yard.run("cluster.up", "--set", "microk8s.registry=true")
    for host in lab.hosts:
        wait(
            lambda: _answers(f"http://{host.ip}:32000/v2/"),  # noqa: B023
            f"{host.name} has a registry",
            seconds=60,
        )


def test_purge_refuses_while_a_host_that_left_the_file_is_in_the_cluster(lab: Lab) -> None:
    yard, file, last = lab.yard, lab.yard.home / "clusters" / "lab.yaml", lab.hosts[-1]
    whole = file.read_text()
    document = json.loads(whole)
    document["microk8s"]["hosts"].pop()
    file.write_text(json.dumps(document))
    refused = yard.run("cluster.down", "--purge", expect=2).stderr
    planned = {
        step["title"]: step["seen"] for step in yard.json("cluster.plan", "--remove")["steps"]
    }
    file.write_text(whole)
    assert f"error: in the cluster, and not in the file: host-3 ({last.ssh})\n" in refused
    ends = planned[f"Remove host-3 ({last.ssh})"]
    assert ends.startswith("no longer in the file; these Ray pods there will end: lab-")
    assert set(yard.states().values()) == {"up"}


@pytest.mark.lifecycle
def test_down_keeps_the_hosts_kubernetes_and_purge_nothing(lab: Lab) -> None:
    yard = lab.yard
    yard.run("cluster.down")
    assert yard.json("cluster.status")["state"] == "down"
    assert {node.partition("/")[2] for node in _nodes(lab)} == {host.name for host in lab.hosts}
    print(yard.run("cluster.down", "--purge").stderr)
    for host in lab.hosts:
        assert "no matching snaps" in host.shell("snap list microk8s 2>&1 || true").stdout
        assert "trainyard" not in host.run("cat", "/etc/hosts").stdout
        assert "trainyard" not in host.run("ls", "/etc/sysctl.d").stdout
        assert host.shell("ls -d /var/snap/microk8s ~/.kube 2> /dev/null || true").stdout == ""
    assert _planned(yard)[:2] == ["Prepare 3 hosts", "Install MicroK8s 1.34/stable on 3 hosts"]


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except OSError:
        return False
    return True


def _planned(yard: Yard) -> list[str]:
    return [
        step["title"] for step in yard.json("cluster.plan")["steps"] if step["state"] == "would"
    ]


def _nodes(lab: Lab) -> list[str]:
    return microk8s.run(lab.hosts[0], "kubectl", "get", "nodes", "-o", "name").stdout.split()
