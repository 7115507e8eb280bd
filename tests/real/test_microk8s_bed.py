"""What plays MicroK8s in tests: a real Kubernetes of several hosts by its own commands, and its traps on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.bed import microk8s
from tests.bed.engine import BedEngine
from tests.bed.hosts import Host, each
from tests.bed.kubernetes import wait
from tests.bed.microk8s import install, join, run, wait_ready
from tests.bed.places import need
from tests.bed.programs import missing

pytestmark = [pytest.mark.docker, pytest.mark.kubernetes, pytest.mark.microk8s, pytest.mark.timeout(900)]
CLUSTERED = "/var/snap/microk8s/current/var/lock/clustered.lock"
API_ARGUMENTS = "/var/snap/microk8s/current/args/kube-apiserver"


@pytest.fixture(scope="module")
def two(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    """Give two hosts with MicroK8s, each a cluster of its own; tests go on where the one before them ended."""
    need(missing())
    with microk8s.bare_hosts(engine, tmp_path_factory.mktemp("microk8s"), count=2) as made:
        made[1].run("hostname", "Host-2")
        each(install, made)
        yield made


def test_a_token_is_used_up_by_a_join_that_fails_and_docker_s_address_comes_first(two: list[Host]) -> None:
    first, second = two
    first.shell("ip link add docker0 type bridge; ip address add 172.17.0.1/16 dev docker0")
    added = json.loads(run(first, "add-node", "--format", "json").stdout)
    assert [url.partition(":")[0] for url in added["urls"]] == ["172.17.0.1", first.ip]
    first.shell("ip link delete docker0")
    itself = run(first, "join", f"{first.ip}:25000/{added['token']}", check=False)
    assert itself.returncode == 6
    assert f"The joining node has the same IP ({first.ip}) as the node we contact (503)." in itself.stdout
    again = run(second, "join", f"{first.ip}:25000/{added['token']}", check=False)
    assert (again.returncode, again.stdout.splitlines()[-1]) == (6, "Connection failed. Invalid token (500).")
    named = run(second, "join", f"host-1:25000/{added['token']}", check=False)
    assert (named.returncode, named.stdout) == (1, "Invalid connection: Invalid master IP\n")


def test_a_control_plane_resolves_the_names_of_those_that_join_where_it_prefers_names(two: list[Host]) -> None:
    first, second = two
    first.shell(f"cp {API_ARGUMENTS} /root; sed -i 's/InternalIP,Hostname/Hostname,InternalIP/' {API_ARGUMENTS}")
    done = join(second, first, "--worker", check=False)
    assert done.returncode == 6
    assert done.stdout.splitlines()[-1] == (
        "Connection failed. The hostname (host-2) of the joining node does not resolve to the IP "
        f'"{second.ip}". Refusing join (400).'
    )
    first.shell(f"cp /root/kube-apiserver {API_ARGUMENTS}")


def test_a_boot_starts_the_services_that_were_not_disabled(two: list[Host]) -> None:
    second = two[1]
    second.power_off()
    second.power_on()
    wait_ready(second, "host-2")
    second.run("snap", "stop", "--disable", "microk8s.daemon-cluster-agent")
    second.power_off()
    second.power_on()
    wait_ready(second, "host-2")
    assert ":25000" not in second.run("ss", "-Hlnt").stdout
    second.run("snap", "start", "--enable", "microk8s")
    wait(lambda: ":25000" in second.run("ss", "-Hlnt").stdout, "the cluster agent listens", seconds=30)


def test_commands_that_do_nothing_exit_0(two: list[Host]) -> None:
    first, second = two
    alone = run(second, "leave", check=False)
    message = "This MicroK8s deployment is not acting as a node in a cluster.\n"
    assert (alone.returncode, alone.stdout) == (1, message)
    join(second, first, "--worker")
    # Its host name is Host-2.
    wait_ready(first, "host-1", "host-2")
    second.run("test", "-e", CLUSTERED)
    for words, said in (
        (("status",), "This MicroK8s deployment is acting as a node in a cluster."),
        (("config",), "Please use the microk8s config on the master."),
        (("kubectl", "get", "nodes"), "Please use the microk8s kubectl on the master."),
        (("stop",), "Use 'snap stop microk8s' to stop services on this node."),
    ):
        done = run(second, *words)
        assert said in done.stdout, words
    assert "Reset is applicable for single node clusters" in run(first, "reset").stdout
    assert run(first, "enable", "nvidia").stdout == "nvidia is enabled\n"
    assert "cannot re-use a name that is still in use" in run(first, "enable", "nvidia").stdout
    assert run(first, "enable", "dns").stdout == "Addon core/dns is already enabled\n"


def test_dns_is_enabled_before_it_answers(two: list[Host]) -> None:
    first = two[0]
    run(first, "disable", "dns")
    assert run(first, "enable", "dns").stdout.endswith("CoreDNS is enabled\n")
    replicas = (
        "kubectl",
        "get",
        "deployment/coredns",
        "-n",
        "kube-system",
        "-o",
        "jsonpath={.status.availableReplicas}",
    )
    assert run(first, *replicas).stdout == ""
    wait(lambda: run(first, *replicas, check=False).stdout == "1", "CoreDNS answers", seconds=120)


def test_a_host_that_leaves_is_a_cluster_of_its_own_and_one_that_is_stopped_says_so_with_0(two: list[Host]) -> None:
    first, second = two
    run(second, "leave")
    run(first, "remove-node", "host-2")
    wait_ready(second, "host-2")
    run(second, "stop")
    second.power_off()
    second.power_on()
    assert run(second, "status").stdout == "microk8s is not running, try microk8s start\n"
    second.run("snap", "remove", "microk8s", "--purge")
    assert second.shell("snap list microk8s 2>&1 || true").stdout == "error: no matching snaps installed\n"


def test_a_launch_file_that_is_wrong_fails_the_installation(two: list[Host]) -> None:
    second = two[1]
    second.shell("echo 'version: 0.1.0\naddon: [dns]' > /etc/microk8s.yaml")
    failed = second.run("snap", "install", "microk8s", "--classic", check=False)
    assert failed.returncode == 1
    assert "failed to parse /etc/microk8s.yaml: field addon not found in type k8sinit.Configuration" in failed.stderr
    assert second.shell("snap list microk8s 2>&1 || true").stdout == "error: no matching snaps installed\n"
