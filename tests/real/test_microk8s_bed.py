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

pytestmark = [pytest.mark.docker, pytest.mark.kubernetes, pytest.mark.breaking, pytest.mark.timeout(900)]
ALL = ("host-1", "host-2", "host-3")


@pytest.fixture(scope="module")
def three(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    """Give three hosts with MicroK8s, each a cluster of its own; tests go on where the one before them ended."""
    need(missing())
    with microk8s.bare_hosts(engine, tmp_path_factory.mktemp("microk8s"), count=3) as made:
        each(install, made)
        yield made


def voters(host: Host) -> int:
    return run(host, "status", "--format", "yaml").stdout.count("role: voter")


def test_a_token_is_used_up_by_a_join_that_fails_and_docker_s_address_comes_first(three: list[Host]) -> None:
    first = three[0]
    first.shell("ip link add docker0 type bridge; ip address add 172.17.0.1/16 dev docker0")
    added = json.loads(run(first, "add-node", "--format", "json").stdout)
    assert [url.partition(":")[0] for url in added["urls"]] == ["172.17.0.1", first.ip]
    first.shell("ip link delete docker0")
    itself = run(first, "join", f"{first.ip}:25000/{added['token']}", check=False)
    assert itself.returncode == 6
    assert f"the joining node has the same IP ({first.ip}) as the node we contact (503)." in itself.stdout
    again = run(three[1], "join", f"{first.ip}:25000/{added['token']}", check=False)
    assert (again.returncode, again.stdout.splitlines()[-1]) == (6, "Connection failed. invalid token (500).")
    named = run(three[1], "join", f"host-1:25000/{added['token']}", check=False)
    assert (named.returncode, named.stdout) == (1, "Invalid connection: Invalid master IP\n")


def test_three_control_planes_vote_and_without_two_of_them_only_reads_go_on(three: list[Host]) -> None:
    first, second, third = three
    join(second, first)
    wait_ready(first, "host-1", "host-2")
    assert voters(first) == 1
    join(third, second)
    wait_ready(first, *ALL)
    wait(lambda: voters(third) == 3, "all three vote", seconds=30)
    for host in (first, second):
        host.kill("microk8s.dqlite")
    assert run(third, "kubectl", "get", "nodes").stdout.count(" Ready ") == 3
    written = run(third, "kubectl", "create", "namespace", "frozen", check=False)
    assert (written.returncode, written.stderr) == (1, "Error from server: etcdserver: request timed out\n")
    for host in (first, second):
        host.run("snap", "start", "microk8s")
    wait(lambda: run(third, "kubectl", "create", "namespace", "thawed", check=False).returncode == 0, "", seconds=60)


def test_a_node_that_was_only_deleted_is_a_ghost_until_it_is_removed_by_its_address(three: list[Host]) -> None:
    first, second, _ = three
    refused = run(first, "remove-node", "host-2", check=False)
    assert refused.returncode == 1
    assert "Node host-2 is registered with dqlite. Please, run first 'microk8s leave'" in refused.stdout
    second.run("snap", "remove", "microk8s", "--purge")
    run(first, "kubectl", "delete", "node", "host-2")
    install(second)
    known = join_fails(second, first)
    assert f"Connection failed. The joining node ({second.ip}) is already known to dqlite (504)." in known
    run(first, "remove-node", second.ip, "--force", check=False)
    join(second, first, "--worker")
    wait_ready(first, *ALL)


def test_commands_that_do_nothing_exit_0(three: list[Host]) -> None:
    first, second, _ = three
    for words, said in (
        (("status",), "This MicroK8s deployment is acting as a node in a cluster."),
        (("config",), "Please use the microk8s config on the master."),
        (("stop",), "Use 'snap stop microk8s' to stop services on this node."),
    ):
        done = run(second, *words)
        assert said in done.stdout, words
    assert "Reset is applicable for single node clusters" in run(first, "reset").stdout
    assert run(first, "enable", "nvidia").stdout == "nvidia is enabled\n"
    assert "cannot re-use a name that is still in use" in run(first, "enable", "nvidia").stdout


def test_a_host_that_leaves_is_a_cluster_of_its_own_and_one_that_is_stopped_says_so_with_0(three: list[Host]) -> None:
    first, second, _ = three
    run(second, "leave")
    run(first, "remove-node", "host-2")
    wait_ready(second, "host-2")
    run(second, "stop")
    assert run(second, "status").stdout == "microk8s is not running, try microk8s start\n"
    second.run("snap", "remove", "microk8s", "--purge")
    assert second.shell("snap list microk8s 2>&1 || true").stdout == "error: no matching snaps installed\n"


def join_fails(host: Host, to: Host) -> str:
    token = json.loads(run(to, "add-node", "--format", "json").stdout)["token"]
    done = run(host, "join", f"{to.ip}:25000/{token}", check=False)
    assert done.returncode == 6
    return done.stdout
