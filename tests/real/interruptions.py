"""Interrupt `up` at a chosen moment: on the command's side, or on a host's."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

from tests.bed.hosts import Host
from tests.real.yard import Done, Yard, wait_until, while_up

DATA = "/var/snap/microk8s/current"


def up(
    yard: Yard,
    came: Callable[[], bool],
    act: Callable[[subprocess.Popen[str]], None],
    *,
    prepare: Callable[[], object] = lambda: None,
) -> str:
    """Run `up` and act in its middle, once a moment has come; return what it printed.

    `up` is repeated until the moment comes. It may fail because of a change that an earlier command
    began and left running. It may have nothing left to do, if that change ended well by itself:
    `prepare` takes such a change back before each try.
    """
    give_up = time.monotonic() + 600
    while time.monotonic() < give_up:
        prepare()
        # A join whose connection broke continues on the host for a while.
        wait_until(
            lambda: not came(), seconds=180, what="nothing of an earlier command runs on the host"
        )
        done, has_come = while_up(yard, came, act)
        if has_come:
            return done.stdout
        assert done.returncode == 0 or "change in progress" in done.stdout, done.stdout
    raise AssertionError(f"the moment did not come\n{done.stdout}")


def failed(yard: Yard) -> Done:
    """Repeat `up` until it fails for another reason than a change in progress; return that."""
    tried: list[Done] = []

    def was_for_another_reason() -> bool:
        tried.append(yard.run("cluster.up", expect=None))
        return "change in progress" not in tried[-1].stderr

    wait_until(
        was_for_another_reason, seconds=180, what="no change of an earlier command is in progress"
    )
    assert tried[-1].returncode in (3, 6), tried[-1].stderr
    return tried[-1]


def error_of(done: Done) -> list[str]:
    return done.stderr[done.stderr.index("error:") :].splitlines()


def is_installed(host: Host) -> bool:
    return host.run("snap", "list", "microk8s", check=False).returncode == 0


def joins(host: Host) -> bool:
    """Say whether a join is in progress on the host."""
    script = f"test -e {DATA}/var/lock/join-in-progress && ps -eo args= | grep -q '[m]icrok8s join'"
    return host.shell(script, check=False).returncode == 0


def kill(command: subprocess.Popen[str]) -> None:
    os.killpg(command.pid, signal.SIGKILL)


def hang_up(host: Host) -> None:
    """End every connection to a host: the processes that sshd has for the connections."""
    host.shell("kill $(ps -o pid= --ppid $(cat /run/sshd.pid))")


def reboot(host: Host) -> None:
    host.power_off()
    host.power_on()
