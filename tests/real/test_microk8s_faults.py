"""Faults of a lab's hosts: one clear error names the host; the repeated command continues.

Also hosts that are added, removed, lost and remade, and two operators at once. Each test needs the
one before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.bed import microk8s, programs
from tests.bed.engine import BedEngine
from tests.bed.hosts import Host
from tests.bed.microk8s import join
from tests.bed.places import need
from tests.real import lab as labs
from tests.real.interruptions import (
    DATA,
    error_of,
    failed,
    hang_up,
    is_installed,
    joins,
    kill,
    reboot,
    up,
)
from tests.real.yard import Yard, wait_until

pytestmark = [pytest.mark.microk8s, pytest.mark.timeout(900)]
API_ARGUMENTS = f"{DATA}/args/kube-apiserver"
AGAIN = "  -> Repair these hosts, and repeat the same command; the other hosts wait."
ALONE = "This MicroK8s deployment is not acting as a node in a cluster."
SSHD = "/usr/sbin/sshd -o PasswordAuthentication=no"


@dataclass(frozen=True)
class Lab:
    """Three bare hosts and two operators; the file names the first two hosts by default."""

    hosts: list[Host]
    yard: Yard
    other: Yard
    document: dict[str, Any]

    @property
    def first(self) -> Host:
        return self.hosts[0]

    @property
    def second(self) -> Host:
        return self.hosts[1]

    def name_hosts(self, *numbers: int) -> None:
        self.document["microk8s"] = {
            "hosts": [{"address": self.hosts[number - 1].ssh} for number in numbers]
        }
        for yard in (self.yard, self.other):
            (yard.home / "clusters" / "lab.yaml").write_text(json.dumps(self.document))

    def nodes(self) -> set[str]:
        return microk8s.ready(self.first)

    def members(self) -> str:
        """Return the members of the database, as the first control plane knows them."""
        return self.first.run("cat", f"{DATA}/var/kubernetes/backend/cluster.yaml").stdout

    def take_second_back(self) -> None:
        """Remove the second host: a join whose connection broke may still have ended well."""
        wait_until(lambda: not joins(self.second), seconds=180, what="the join of before has ended")
        microk8s.run(self.second, "leave", check=False)
        microk8s.run(self.first, "remove-node", "host-2", "--force", check=False)


@pytest.fixture(scope="module")
def lab(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    need(programs.missing())
    ann, bob = (tmp_path_factory.mktemp(name) for name in ("ann", "bob"))
    with microk8s.bare_hosts(engine, tmp_path_factory.mktemp("hosts"), count=3) as made:
        # Kubernetes allows no capitals in a node's name.
        made[1].run("hostname", "Host-2")
        # The head never runs on the host that is rebooted and remade: waiting for its worker is
        # enough.
        groups = {"head": {"node_selector": {"kubernetes.io/hostname": "host-1"}}}
        document = labs.cluster_file(engine, ann, made, workers=1, spread="required", groups=groups)
        ours, theirs = (labs.place_to_work(home, made, document) for home in (ann, bob))
        found = Lab(made, ours, theirs, document)
        found.name_hosts(1, 2)
        yield found


CROWD = """
printf '#!/bin/sh\\nexec /bin/date -d "1 hour" "$@"\\n' > /usr/local/bin/date
chmod +x /usr/local/bin/date
mount -t tmpfs -o size=1g none /var/snap
touch /etc/microk8s.yaml
for port in 16443 32000; do
    python3 -m http.server $port > /dev/null 2>&1 &
    echo $! >> /tmp/pids
    until python3 -c "import socket; socket.create_connection(('127.0.0.1', $port))" 2> /dev/null; do sleep 0.1; done
done
"""
# DEFECT: (how the second host is broken, how it is mended, lines of the error); {ip} is the second
# host's address.
BROKEN: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "its sudo wants another password": (
        "echo ops:right | chpasswd; sed -i 's/NOPASSWD: //' /etc/sudoers.d/ops",
        "echo 'ops ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/ops",
        (
            "error: sudo on {ip} fails",
            "  at ssh ops@{ip}: sudo: 1 incorrect password attempt",
            "  -> Set TRAINYARD_SUDO_PASSWORD to the password of user ops there, or allow it "
            "sudo without one "
            "(NOPASSWD in sudoers). To try the password: ssh -t ops@{ip} sudo -k true",
        ),
    ),
    "its host key is another": (
        "cd /etc/ssh; mkdir kept; mv ssh_host_ed25519_key* kept; "
        "ssh-keygen -q -t ed25519 -N '' -f ssh_host_ed25519_key",
        "cd /etc/ssh; mv kept/* .",
        (
            "error: the host key of {ip} has changed",
            (
                "  -> Another machine may be answering. If you know that the change is right: "
                "ssh-keygen -R '{ip}'"
            ),
        ),
    ),
    "its sshd does not run": (
        "kill $(cat /run/sshd.pid)",
        SSHD,
        (
            "error: {ip} cannot be reached by SSH on port 22",
            "  -> Is the name right, is the machine on, and does sshd run there? This must work "
            "without a prompt: "
            "ssh ops@{ip} true",
        ),
    ),
    # Port 32000 is taken as well, which is no problem: no addon would listen there.
    (
        "its clock is wrong, its disk is small, somebody wrote how MicroK8s is to start, and "
        "something has its ports"
    ): (
        CROWD,
        "rm /usr/local/bin/date; umount /var/snap; rm /etc/microk8s.yaml; kill $(cat /tmp/pids)",
        (
            "  - {ip}: something else listens on 16443 (the API server)",
            "  - {ip}: has 1.0 GiB of disk free in /var/snap, and needs 2.0",
            "  - {ip}: has a launch configuration that Trainyard did not write: sudo mv "
            "/etc/microk8s.yaml "
            "elsewhere",
            "  - {ip}: its clock is 60 min ahead of the others': sudo timedatectl set-ntp true",
            AGAIN,
        ),
    ),
}


def test_a_launch_file_that_is_wrong_fails_the_installation(lab: Lab) -> None:
    third = lab.hosts[2]
    third.shell("echo 'version: 0.1.0\naddon: [dns]' > /etc/microk8s.yaml")
    failed = third.run("snap", "install", "microk8s", "--classic", check=False)
    third.shell("rm /etc/microk8s.yaml")
    assert failed.returncode == 1
    assert (
        "failed to parse /etc/microk8s.yaml: field addon not found in type k8sinit.Configuration"
        in failed.stderr
    )
    assert not is_installed(third)


def test_a_snapd_without_hold_or_not_running_stops_up_before_installing(
    lab: Lab,
) -> None:
    second = lab.second
    told = second.files / "snapd"
    told.write_text("unavailable\n")
    assert "snapd   unavailable\n" in second.run("snap", "version").stdout
    assert second.run("snap", "list", check=False).returncode == 1
    away = error_of(lab.yard.run("cluster.up", expect=3))
    told.write_text("2.57.6-1+b5\n")
    refused = second.run("snap", "refresh", "--hold", "microk8s", check=False)
    assert (refused.returncode, refused.stderr) == (64, "error: unknown flag `hold'\n")
    old = error_of(lab.yard.run("cluster.up", expect=3))

    assert [away[1], old[1]] == [
        f"  - {second.ip}: its snapd does not run: sudo systemctl start snapd.socket",
        (
            f"  - {second.ip}: its snapd is 2.57.6-1+b5, and only 2.58 or newer can hold a refresh: "
            "sudo snap install snapd"
        ),
    ]

    assert not any(is_installed(host) for host in (lab.first, second))
    second.run("snap", "install", "snapd")
    assert "Install MicroK8s 1.34/stable on 2 hosts" in planned(lab.yard)
    told.unlink()
    second.run("rm", "-r", "/var/lib/snapd")


def test_a_closed_channel_is_named_before_anything_is_installed_from_it(lab: Lab) -> None:
    closed = lab.first.files / "closed-channels"
    closed.write_text("1.34/stable\n")
    planned_with_it = lab.yard.run("cluster.plan")
    closed.unlink()
    said = (
        "1.34/stable is closed: nothing can be installed from it; snap info microk8s lists "
        "the open ones"
    )
    assert said in " ".join((planned_with_it.stdout + planned_with_it.stderr).split())
    assert "is closed" not in lab.yard.run("cluster.plan").stderr
    assert not any(is_installed(host) for host in (lab.first, lab.second))


@pytest.mark.parametrize("what", BROKEN)
def test_problems_of_a_host_are_one_error_before_anything_is_done(lab: Lab, what: str) -> None:
    breaks, mends, expected = BROKEN[what]
    unlucky = replace(lab.yard, environ={**lab.yard.environ, "TRAINYARD_SUDO_PASSWORD": "wrong"})
    lab.second.shell(breaks)
    try:
        lines = error_of(unlucky.run("cluster.up", expect=3))
    finally:
        lab.second.shell(mends)
    wanted = [line.format(ip=lab.second.ip) for line in expected]
    assert [line for line in lines if line in wanted] == wanted, lines
    assert not any(lab.first.ip in line for line in lines)


def test_each_wrong_host_keeps_its_own_remedy_and_a_typo_is_a_row(lab: Lab) -> None:
    known = lab.first.home / ".ssh" / "known_hosts"
    before = known.read_text()
    known.write_text(
        "".join(
            line for line in before.splitlines(True) if not line.startswith(f"{lab.second.ip} ")
        )
    )

    lab.document["microk8s"]["hosts"].append({"address": "ops@nohost.invalid"})
    (lab.yard.home / "clusters" / "lab.yaml").write_text(json.dumps(lab.document))
    lines = error_of(lab.yard.run("cluster.up", expect=3))
    known.write_text(before)
    lab.name_hosts(1, 2)
    assert len(lines) == 4
    assert re.fullmatch(
        rf"  - {lab.second.ip}: the host key of {lab.second.ip} is not known here: .* SHA256:\S+ "
        rf"-> Check the key and accept it once: ssh ops@{lab.second.ip}",
        lines[1],
    )

    assert lines[2].startswith(
        "  - nohost.invalid: the name nohost.invalid cannot be looked up: ssh ops@nohost"
    )
    assert " -> Is it spelled right?" in lines[2]
    assert lines[3] == AGAIN


def test_a_full_disk_is_snapd_s_error_with_its_host_and_others_continue(lab: Lab) -> None:
    lab.second.shell("mkdir /var/lib/snapd; mount -t tmpfs -o size=1m none /var/lib/snapd")
    lines = error_of(lab.yard.run("cluster.up", expect=6))
    lab.second.shell("umount /var/lib/snapd")
    assert lines[0] == f"error: {lab.second.ip}: snap install microk8s failed"
    assert lines[1].endswith(": no space left on device)")
    assert lines[2] == "  -> When the cause is gone, repeat the same command: it continues."
    assert [is_installed(host) for host in (lab.first, lab.second)] == [True, False]


def test_up_can_be_killed_while_it_installs(lab: Lab) -> None:
    remove = ("snap", "remove", "microk8s", "--purge")
    up(
        lab.yard,
        lambda: is_installed(lab.second),
        kill,
        prepare=lambda: lab.second.run(*remove, check=False),
    )


def test_a_host_that_does_not_reach_the_api_says_so(lab: Lab) -> None:
    rule = f"INPUT -s {lab.second.ip} -p tcp --dport 16443 -j REJECT"
    lab.first.shell(f"iptables -I {rule}")
    lines = error_of(failed(lab.yard))
    lab.first.shell(f"iptables -D {rule}")
    assert lines == [
        f"error: {lab.second.ip} does not reach the API server of {lab.first.ip}",
        f"  at {lab.first.ip}:16443",
        (
            "  -> Open that port in the firewalls between the hosts; or set the address that works: `ip:` of "
            f"{lab.first.ip}."
        ),
    ]


def test_microk8s_refuses_joins_as_documented_and_exits_0_when_stopped(lab: Lab) -> None:
    first, second = lab.first, lab.second
    first.shell("ip link add docker0 type bridge; ip address add 172.17.0.1/16 dev docker0")
    added = json.loads(microk8s.run(first, "add-node", "--format", "json").stdout)
    assert [url.partition(":")[0] for url in added["urls"]] == ["172.17.0.1", first.ip]
    first.shell("ip link delete docker0")

    for host, address, code, message in (
        (
            first,
            first.ip,
            6,
            f"The joining node has the same IP ({first.ip}) as the node we contact (503).",
        ),
        # The join that failed has used up the token.
        (second, first.ip, 6, "Connection failed. Invalid token (500)."),
        (second, "host-1", 1, "Invalid connection: Invalid master IP"),
    ):
        done = microk8s.run(host, "join", f"{address}:25000/{added['token']}", check=False)
        assert done.returncode == code
        assert done.stdout.splitlines()[-1].endswith(message)

    first.shell(
        f"cp /etc/hosts {API_ARGUMENTS} /root; sed -i "
        f"'s/InternalIP,Hostname/Hostname,InternalIP/' {API_ARGUMENTS}"
    )
    first.shell("echo > /etc/hosts")
    assert (
        "(host-2) of the joining node does not resolve"
        in join(second, first, "--worker", check=False).stdout
    )
    first.shell(f"cp /root/kube-apiserver {API_ARGUMENTS}; cp /root/hosts /etc/hosts")
    # `--controlplane` leads to the join of a worker: a control plane joins without a flag.
    refused = join(second, first, "--controlplane", check=False)
    message = (
        "Joining process failed. Make sure the cluster you connect to supports joining "
        "worker nodes."
    )
    assert (refused.returncode, refused.stdout.splitlines()[-1]) == (1, message)
    assert second.run("ls", f"{DATA}/var/lock/join-in-progress").returncode == 0
    assert first.run("ls", f"{DATA}/var/lock/no-cert-reissue").returncode == 0
    assert f"{first.ip}:19001" in lab.members()
    alone = microk8s.run(second, "leave", check=False)
    assert (alone.returncode, alone.stdout) == (1, f"{ALONE}\n")
    # The next `up` starts MicroK8s.
    microk8s.run(second, "stop")
    stopped = microk8s.run(second, "leave", check=False)
    assert (stopped.returncode, stopped.stderr) == (
        1,
        "microk8s is not running, try microk8s start\n",
    )
    assert microk8s.run(second, "status").stdout == "microk8s is not running, try microk8s start\n"


def test_a_token_that_is_not_valid_any_more_is_the_agent_s_error(lab: Lab) -> None:
    forget = (
        f"while [ -e /tmp/forget ]; do : > {DATA}/credentials/cluster-tokens.txt; sleep 0.1; done"
    )
    lab.first.shell(f"touch /tmp/forget; ({forget}) > /dev/null 2>&1 &")
    lines = error_of(failed(lab.yard))
    lab.first.shell("rm /tmp/forget")
    assert lines[0] == f"error: {lab.second.ip} could not join"
    assert "connection failed. invalid token (500)." in lines[1].lower()
    assert lines[2] == "  -> Repeat the same command: what the failed join left is removed first."


def test_a_connection_that_breaks_in_mid_join_is_named(lab: Lab) -> None:
    output = up(
        lab.yard,
        lambda: joins(lab.second),
        lambda _: hang_up(lab.second),
        prepare=lab.take_second_back,
    )
    lines = output[output.index("error:") :].splitlines()
    assert lines[0] == f"error: the connection to {lab.second.ip} broke"
    assert lines[2] == "  -> Repeat the command: it continues."


def test_up_removes_a_ghost_and_names_the_host_that_reboots_in_mid_join(lab: Lab) -> None:
    lab.take_second_back()
    # Joins as a control plane of another minor version: `join` exits 0, yet the host never becomes
    # a node, and stays a member of the database.
    lab.second.run("snap", "refresh", "microk8s", "--channel=1.35/stable")
    assert join(lab.second, lab.first).stdout.endswith("Successfully joined the cluster.\n")
    wait_until(lambda: lab.second.ip in lab.members(), seconds=60, what="a member more")
    assert lab.nodes() == {"host-1"}
    lab.second.run("snap", "remove", "microk8s", "--purge")
    output = up(lab.yard, lambda: joins(lab.second), lambda _: reboot(lab.second))
    assert lab.second.ip in output[output.index("error:") :].splitlines()[0]
    assert lab.second.ip not in lab.members()


def test_up_then_ends_in_a_good_cluster(lab: Lab) -> None:
    print(lab.yard.run("cluster.up", seconds=400).stderr)
    assert lab.nodes() == {"host-1", "host-2"}
    assert lab.yard.json("smoke.run")["ok"]


def test_a_host_that_was_rebooted_after_up_works_again(lab: Lab) -> None:
    reboot(lab.second)
    print(lab.yard.run("cluster.up", seconds=400).stderr)
    assert set(lab.yard.states().values()) == {"up"}


def test_an_added_host_joins_and_a_second_operator_is_told_the_first(lab: Lab) -> None:
    lab.document["workers"][0]["count"] = 0
    lab.name_hosts(1, 2, 3)
    assert "Join 2 workers" in planned(lab.yard)
    # The lock's owner writes its name into this file; trying to take the lock would hold it.
    before = lab.hosts[0].run("cat", "/run/trainyard.lock").stdout
    first = lab.yard.start("cluster.up")
    wait_until(
        lambda: lab.hosts[0].run("cat", "/run/trainyard.lock").stdout != before,
        seconds=60,
        what="locked",
    )

    refused = lab.other.run("cluster.up", expect=4).stderr
    assert "error: another command is changing these hosts\n" in refused
    found = re.search(rf"  at {lab.hosts[0].ip}: \S+@\S+ since .* \(process (\d+)\)\n", refused)
    assert found and f"sudo kill {found[1]}\n" in refused
    assert first.wait(300) == 0, first.stdout and first.stdout.read()
    assert lab.nodes() == {"host-1", "host-2", "host-3"}
    assert planned(lab.yard) == []


def test_a_host_that_left_the_file_is_named_and_leaves_clean_when_asked(
    lab: Lab,
) -> None:
    lab.name_hosts(1, 2)
    left = (
        f"host-3 ({lab.hosts[2].ssh}): still in the cluster, and no longer in the file: "
        "trainyard cluster.up --remove"
    )
    assert f"warning: {left}" in lab.yard.run("cluster.up").stderr
    assert lab.nodes() == {"host-1", "host-2", "host-3"}
    row = lab.yard.json("cluster.status")["hosts"][2]
    assert (row["host"], row["address"], row["state"]) == ("host-3", lab.hosts[2].ip, "ready")
    assert row["seen"] == "not in the file any more: trainyard cluster.up --remove"
    # As if the host's join had been cut off before it wrote this lock: MicroK8s then refuses to let
    # the host leave.
    lab.hosts[2].run("rm", f"{DATA}/var/lock/no-cert-reissue")
    refused = microk8s.run(lab.hosts[2], "leave", check=False)
    assert (refused.returncode, refused.stdout) == (1, f"{ALONE}\n")
    step = f"Remove host-3 ({lab.hosts[2].ssh})"
    assert planned(lab.yard, "--remove") == [step]
    # The real `leave` takes from 20 s to two minutes.
    (lab.hosts[2].files / "leave-seconds").write_text("45\n")
    done = lab.yard.json("cluster.up", "--remove")["steps"]
    assert [each["title"] for each in done if each["changed"]] == [step]
    assert lab.nodes() == {"host-1", "host-2"}
    host = lab.hosts[2]
    assert "no matching snaps" in host.shell("snap list microk8s 2>&1 || true").stdout
    written = host.shell(
        "cat /etc/hosts; ls /etc/sysctl.d /run /var/snap/microk8s 2>&1 || true"
    ).stdout
    assert "trainyard" not in written


def test_leftovers_of_a_purged_host_are_removed_and_it_joins_again(lab: Lab) -> None:
    lab.hosts[1].run("snap", "remove", "microk8s", "--purge")
    planned = {step["title"]: step["state"] for step in lab.yard.json("cluster.plan")["steps"]}
    changed = {step["title"] for step in lab.yard.json("cluster.up")["steps"] if step["changed"]}
    assert f"Remove what is left of {lab.hosts[1].ip}" in changed
    # A stage that cannot be inspected yet has steps that a plan cannot name.
    assert {title for title, state in planned.items() if state == "would"} <= changed
    assert not [title for title in changed if planned.get(title) == "already"]
    assert lab.nodes() == {"host-1", "host-2"}


def test_a_dead_host_is_a_row_beside_whole_ones(lab: Lab) -> None:
    first, second = lab.first, lab.second
    second.run("snap", "stop", "microk8s")
    stopped = lab.yard.json("cluster.status")["hosts"][1]
    assert (stopped["host"], stopped["state"], stopped["seen"]) == (
        "host-2",
        "not ready",
        "its kubelet does not run",
    )

    second.power_off()
    alive, dead = lab.yard.json("cluster.status")["hosts"]
    assert (alive["name"], alive["state"], alive["voter"], alive["certificate_days"]) == (
        first.ip,
        "ready",
        True,
        365,
    )

    assert (dead["name"], dead["state"], dead["version"]) == (second.ip, "unreachable", None)
    unreachable = f"{second.ip} cannot be reached by SSH on port 22"
    assert dead["seen"].startswith(f"{unreachable}: ")
    found = lab.yard.json("cluster.doctor", expect=5)["findings"]
    assert (found[0]["subject"], found[0]["message"]) == (second.ip, unreachable)


def test_a_dead_host_is_named_and_goes_by_force_alone(lab: Lab) -> None:
    dead = lab.second
    assert (
        f"error: {dead.ip} cannot be reached by SSH on port 22\n"
        in lab.yard.run("cluster.up", expect=3).stderr
    )
    lab.name_hosts(1)
    refused = lab.yard.run("cluster.up", "--remove", expect=3).stderr
    assert (
        f"error: host-2 is no longer in the file, and cannot be told to leave: {dead.ip} cannot be"
        in refused
    )
    lab.yard.run("cluster.up", "--remove", "--force")
    assert lab.nodes() == {"host-1"}
    # The operator may have been on the host that is dead: Kubernetes starts another pod of it.
    wait_until(lambda: planned(lab.yard) == [], seconds=120, what="the operator runs")


def test_a_cluster_of_dead_hosts_is_down(lab: Lab) -> None:
    lab.first.power_off()
    status = lab.yard.json("cluster.status")
    assert (status["state"], [host["state"] for host in status["hosts"]]) == (
        "down",
        ["unreachable"],
    )


def planned(yard: Yard, *flags: str) -> list[str]:
    return [
        step["title"]
        for step in yard.json("cluster.plan", *flags)["steps"]
        if step["state"] == "would"
    ]
