"""Removal of Trainyard's MicroK8s, and of Trainyard's files on all hosts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainyard.backends.microk8s.facts import (
    COMMON,
    LAUNCH_FILE,
    MARK,
    SYSCTL_FILE,
    UNAVAILABLE,
    Facts,
)
from trainyard.backends.microk8s.lab import LOCK_FILE, Host, Lab, each_step
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.seams.ssh import hosts_file
from trainyard.seams.ssh.hosts import each
from trainyard.steps import YES, Answer, Step, no
from trainyard.wording import counted, named

REMOVE_SECONDS = 600.0
_REMOVE = "remove-microk8s"


def steps(lab: Lab, written: Sequence[Path]) -> list[Step]:
    """Return the steps that remove MicroK8s, and Trainyard's files.

    Workers are removed first, because they still talk to control planes.
    `written` are this machine's files about the lab, which are deleted last.
    Raises an error if snapd does not answer, or if Trainyard installed MicroK8s
    on only some of the hosts that have it.
    """
    facts = lab.facts()
    silent = [host.name for host in lab.hosts if facts[host.name].snapd == UNAVAILABLE]
    if silent:
        raise PrerequisiteError(
            f"snapd does not run on {named(silent)}, so it is not known what is installed there",
            hint="There: sudo systemctl start snapd.socket",
        )

    ours = [host for host in (*lab.workers, *lab.control_planes) if facts[host.name].is_ours]
    others = [host.name for host in lab.hosts if facts[host.name].snap and host not in ours]
    if ours and others:
        raise RequestError(
            f"Trainyard did not install MicroK8s on {named(others)}, but on other hosts of the "
            "cluster",
            hint="Remove the hosts with Trainyard's MicroK8s from the file, and: trainyard "
            "cluster.up --remove",
        )

    title = "Remove no MicroK8s: Trainyard installed none"
    if ours:
        title = f"Remove MicroK8s from {counted(len(ours), 'host')}"

    def is_removed() -> Answer:
        facts = lab.facts()
        left = [host.name for host in ours if facts[host.name].snap]
        if left:
            return no(f"still installed: {named(left)}")
        return YES

    def remove() -> None:
        for group in (lab.workers, lab.control_planes):
            each([host for host in group if host in ours], purge)
        lab.changed()

    removal = Step(_REMOVE, title, is_removed, remove, disruptive=bool(ours))
    title = f"Remove Trainyard's files from {counted(len(lab.hosts), 'host')}"
    after = _REMOVE if ours else None
    cleaning = each_step(lab, "leave-as-found", title, _is_marked, _clean, after=after)
    return [removal, cleaning, _forgetting(written)]


def _forgetting(written: Sequence[Path]) -> Step:
    def are_gone() -> Answer:
        if any(path.exists() for path in written):
            return no("it still exists")
        return YES

    def unlink() -> None:
        for path in written:
            path.unlink(missing_ok=True)

    return Step("remove-kubeconfig", "Remove the kubeconfig", are_gone, unlink)


def give_back(host: Host, fact: Facts) -> None:
    """Remove Trainyard's files from a host, and Trainyard's MicroK8s."""
    if fact.is_ours:
        purge(host)
    _clean(host)


def purge(host: Host) -> None:
    host.root("snap", "remove", "microk8s", "--purge", seconds=REMOVE_SECONDS)


def _is_marked(_: Host, fact: Facts) -> str:
    is_marked = fact.has_our_limits or fact.is_ours or hosts_file.lines_of(fact.hosts_file)
    if is_marked:
        return "Trainyard's files are still there"
    return ""


def _clean(host: Host) -> None:
    # The kernel keeps the limits until the next boot, because other programs may rely on them.
    host.root("rm", "-f", SYSCTL_FILE, LOCK_FILE)
    # On a prepared host where MicroK8s was never installed, no purge has removed the launch file.
    launch = f'! grep -qsx "{MARK}" {LAUNCH_FILE} || rm -rf {LAUNCH_FILE} {COMMON}/etc'
    host.root("sh", "-euc", launch)
    hosts_file.write(host, "")
    # Root's kubectl cache, and directories that the purge has left empty.
    empty = "rm -rf ~/.kube/cache; rmdir ~/.kube /var/snap/microk8s/common /var/snap/microk8s"
    host.root("sh", "-c", empty, check=False)
