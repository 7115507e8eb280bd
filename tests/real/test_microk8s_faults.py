"""What goes wrong on a lab's hosts: one clear error that names the host, after which the same command goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.bed import microk8s, programs
from tests.bed.engine import BedEngine
from tests.bed.hosts import Host
from tests.bed.places import need
from tests.real import lab as labs
from tests.real.yard import Done, Yard, wait_until, while_up

pytestmark = [pytest.mark.docker, pytest.mark.kubernetes, pytest.mark.microk8s, pytest.mark.timeout(900)]
DATA = "/var/snap/microk8s/current"
AGAIN = "  -> Mend them, and repeat the same command; the others wait."
SSHD = "/usr/sbin/sshd -o PasswordAuthentication=no"


@dataclass(frozen=True)
class Lab:
    """Two bare hosts and a place to work in; each test goes on where the one before it ended."""

    first: Host
    second: Host
    yard: Yard

    def nodes(self) -> set[str]:
        return microk8s.ready(self.first)


@pytest.fixture(scope="module")
def lab(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    need(programs.missing())
    with microk8s.bare_hosts(engine, tmp_path_factory.mktemp("hosts"), count=2) as made:
        yield lab_of(engine, made, tmp_path_factory.mktemp("lab"))


def lab_of(engine: BedEngine, made: list[Host], home: Path) -> Lab:
    document = labs.cluster_file(engine, home, made, workers=1, spread="required")
    return Lab(made[0], made[1], labs.place_to_work(home, made, document))


# WHAT: how the second host is broken, how it is mended, and the lines of the error; {ip} is its address.
BROKEN: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "its sudo wants another password": (
        "echo ops:right | chpasswd; sed -i 's/NOPASSWD: //' /etc/sudoers.d/ops",
        "echo 'ops ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/ops",
        (
            "error: sudo of {ip} refuses",
            "  at ssh ops@{ip}: sudo: 1 incorrect password attempt",
            "  -> Set TRAINYARD_SUDO_PASSWORD to the password of user ops there, or allow it sudo without one "
            "(NOPASSWD in sudoers). To try the password: ssh -t ops@{ip} sudo -k true",
        ),
    ),
    "its host key is another": (
        "cd /etc/ssh; mkdir kept; mv ssh_host_ed25519_key* kept; "
        "ssh-keygen -q -t ed25519 -N '' -f ssh_host_ed25519_key",
        "cd /etc/ssh; mv kept/* .",
        (
            "error: the host key of {ip} has changed",
            "  -> Somebody may stand between. If the change is known to be right: ssh-keygen -R '{ip}'",
        ),
    ),
    "its sshd does not run": (
        "kill $(cat /run/sshd.pid)",
        SSHD,
        (
            "error: {ip} cannot be reached by SSH on port 22",
            "  -> Is the name right, is it on, and does sshd run there? It must work without a question: "
            "ssh ops@{ip} true",
        ),
    ),
    "its clock is wrong": (
        'printf \'#!/bin/sh\\nexec /bin/date -d "1 hour" "$@"\\n\' > /usr/local/bin/date; chmod +x /usr/local/bin/date',
        "rm /usr/local/bin/date",
        ("  - {ip}: its clock is 60 min ahead of the others': sudo timedatectl set-ntp true", AGAIN),
    ),
    "its disk is small, and somebody wrote how MicroK8s is to start": (
        "mount -t tmpfs -o size=1g none /var/snap; touch /etc/microk8s.yaml",
        "umount /var/snap; rm /etc/microk8s.yaml",
        (
            "  - {ip}: has 1.0 GiB of disk free in /var/snap, and needs 2.0",
            "  - {ip}: has a launch configuration that is not of Trainyard's making: sudo mv /etc/microk8s.yaml "
            "elsewhere",
            AGAIN,
        ),
    ),
    # There is no addon that would listen on 32000.
    "something listens on its ports": (
        "for port in 16443 32000; do python3 -m http.server $port > /dev/null 2>&1 & echo $! >> /tmp/pids; done\n"
        "sleep 1",
        "kill $(cat /tmp/pids)",
        ("  - {ip}: something else listens on 16443 (the API server)", AGAIN),
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_wrong_with_a_host_is_one_error_that_names_it_before_anything_is_done(lab: Lab, what: str) -> None:
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


def test_a_disk_that_is_full_is_snapd_s_error_with_the_host_and_the_others_go_on(lab: Lab) -> None:
    lab.second.shell("mkdir /var/lib/snapd; mount -t tmpfs -o size=1m none /var/lib/snapd")
    lines = error_of(lab.yard.run("cluster.up", expect=6))
    lab.second.shell("umount /var/lib/snapd")
    assert lines[0] == f"error: {lab.second.ip}: snap install microk8s failed"
    assert lines[1].endswith(": no space left on device)")
    assert lines[2] == "  -> When that is mended, or has ended, repeat the same command: it continues."
    assert [is_installed(host) for host in (lab.first, lab.second)] == [True, False]


def test_up_that_is_killed_while_it_installs_goes_on(lab: Lab) -> None:
    up(lab, lambda: is_installed(lab.second), kill)


def test_a_host_that_does_not_reach_the_api_says_so(lab: Lab) -> None:
    rule = f"INPUT -s {lab.second.ip} -p tcp --dport 16443 -j REJECT"
    lab.first.shell(f"iptables -I {rule}")
    lines = error_of(failed(lab))
    lab.first.shell(f"iptables -D {rule}")
    assert lines == [
        f"error: {lab.second.ip} does not reach the API server of {lab.first.ip}",
        f"  at {lab.first.ip}:16443",
        f"  -> Let it through the firewalls between them; or name the one that works: `ip:` of {lab.first.ip}.",
    ]


def test_a_token_that_is_not_valid_any_more_is_the_agent_s_error(lab: Lab) -> None:
    forget = f"while [ -e /tmp/forget ]; do : > {DATA}/credentials/cluster-tokens.txt; sleep 0.1; done"
    lab.first.shell(f"touch /tmp/forget; ({forget}) > /dev/null 2>&1 &")
    lines = error_of(failed(lab))
    lab.first.shell("rm /tmp/forget")
    assert lines[0] == f"error: {lab.second.ip} could not join"
    assert "connection failed. invalid token (500)." in lines[1].lower()
    assert lines[2] == "  -> Repeat the same command: what the failed join left is removed first."


def test_a_connection_that_breaks_in_mid_join_is_named(lab: Lab) -> None:
    output = up(lab, lambda: joins(lab.second), lambda _: hang_up(lab.second))
    lines = output[output.index("error:") :].splitlines()
    assert lines[0] == f"error: the connection to {lab.second.ip} broke"
    assert lines[2] == "  -> Repeat the command: it continues."


def test_up_goes_on_after_a_ghost_a_reboot_and_a_kill_in_mid_join(lab: Lab) -> None:
    # A join whose connection broke goes on, and may have ended well.
    wait_until(lambda: not joins(lab.second), seconds=60, what="the join of before has ended")
    microk8s.run(lab.second, "leave", check=False)
    microk8s.run(lab.first, "remove-node", "host-2", "--force", check=False)
    # What a failed join of a control plane leaves.
    ghost = f"from standin import store; store.add('{lab.second.ip}:19001'); store.write_files()"
    lab.first.run("env", "PYTHONPATH=/opt/bed", "python3", "-c", ghost)
    output = up(lab, lambda: joins(lab.second), lambda _: reboot(lab.second))
    assert lab.second.ip in output[output.index("error:") :].splitlines()[0]
    assert f"{lab.second.ip}:19001" not in lab.first.run("cat", f"{DATA}/var/kubernetes/backend/cluster.yaml").stdout
    up(lab, lambda: joins(lab.second), kill)


def test_up_that_was_killed_while_kuberay_s_part_ran_ends_in_a_good_cluster(lab: Lab) -> None:
    def is_made() -> bool:
        asked = microk8s.run(lab.first, "kubectl", "get", "rayclusters", "-A", "-o", "name", check=False)
        return bool(asked.stdout.strip())

    up(lab, is_made, kill)
    print(lab.yard.run("cluster.up", seconds=400).stderr)
    assert lab.nodes() == {"host-1", "host-2"}
    assert lab.yard.json("smoke.run")["ok"]
    assert not any(step["changed"] for step in lab.yard.json("cluster.up")["steps"])


def test_a_host_that_was_rebooted_after_up_works_again(lab: Lab) -> None:
    reboot(lab.second)
    print(lab.yard.run("cluster.up", seconds=400).stderr)
    assert set(lab.yard.states().values()) == {"up"}


def up(lab: Lab, came: Callable[[], bool], act: Callable[[subprocess.Popen[str]], None]) -> str:
    """Run `up` and act in its middle, once a moment has come; return what it printed.

    Before that it may fail, for what an earlier one began and does not watch any more.
    """
    for _ in range(5):
        # A join whose connection broke goes on for a while.
        wait_until(lambda: not came(), seconds=60, what="nothing of an earlier command runs on the host")
        done, has_come = while_up(lab.yard, came, act)
        if has_come:
            return done.stdout
        assert "change in progress" in done.stdout, done.stdout
        time.sleep(2)
    raise AssertionError(f"the moment did not come\n{done.stdout}")


def failed(lab: Lab) -> Done:
    """Return `up` that failed, for another reason than what an earlier one began and does not watch any more."""
    for _ in range(5):
        done = lab.yard.run("cluster.up", expect=None)
        if "change in progress" not in done.stderr:
            assert done.returncode in (3, 6), done.stderr
            return done
        time.sleep(2)
    raise AssertionError(done.stderr)


def error_of(done: Done) -> list[str]:
    return done.stderr[done.stderr.index("error:") :].splitlines()


def is_installed(host: Host) -> bool:
    return host.run("snap", "list", "microk8s", check=False).returncode == 0


def joins(host: Host) -> bool:
    """Say whether a join has been begun, and goes on."""
    script = f"test -e {DATA}/var/lock/join-in-progress && ps -eo args= | grep -q '[m]icrok8s join'"
    return host.shell(script, check=False).returncode == 0


def kill(command: subprocess.Popen[str]) -> None:
    os.killpg(command.pid, signal.SIGKILL)


def hang_up(host: Host) -> None:
    """End every connection to a host: the processes that sshd has for them."""
    host.shell("kill $(ps -o pid= --ppid $(cat /run/sshd.pid))")


def reboot(host: Host) -> None:
    host.power_off()
    host.power_on()
