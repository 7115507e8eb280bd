"""Hosts as they were found: MicroK8s goes where we installed it, and what was written beside it
everywhere.
"""

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
# The id of the step that removes it.
_REMOVE = "remove-microk8s"


def steps(lab: Lab, written: Sequence[Path]) -> list[Step]:
    """Return the steps: workers first, so that no control plane goes while something is told to it.

    `written` are files of this machine about the lab; they go last.
    """
    facts = lab.facts()
    if silent := [host.name for host in lab.hosts if facts[host.name].snapd == UNAVAILABLE]:
        what = (
            f"snapd does not run on {named(silent)}, and nobody else knows what is installed there"
        )
        raise PrerequisiteError(what, hint="There: sudo systemctl start snapd.socket")

    ours = [host for host in (*lab.workers, *lab.control_planes) if facts[host.name].is_ours]
    others = [host.name for host in lab.hosts if facts[host.name].snap and host not in ours]
    if ours and others:
        raise RequestError(
            f"MicroK8s on {named(others)} is not of Trainyard's making, and in one cluster with "
            "hosts where it is",
            hint="Take ours out of the file, and: trainyard cluster.up --remove",
        )

    title = (
        f"Remove MicroK8s from {counted(len(ours), 'host')}"
        if ours
        else "Remove no MicroK8s: none is ours"
    )

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

    left = f"Leave {counted(len(lab.hosts), 'host')} as found"
    cleaned = each_step(
        lab, "leave-as-found", left, _is_marked, _clean, after=_REMOVE if ours else None
    )

    def are_gone() -> Answer:
        return no("it is there") if any(path.exists() for path in written) else YES

    def unlink() -> None:
        for path in written:
            path.unlink(missing_ok=True)

    forget = Step("remove-kubeconfig", "Remove its kubeconfig", are_gone, unlink)
    return [Step(_REMOVE, title, is_removed, remove, disruptive=bool(ours)), cleaned, forget]


def give_back(host: Host, fact: Facts) -> None:
    """Leave one host as it was found."""
    if fact.is_ours:
        purge(host)
    _clean(host)


def purge(host: Host) -> None:
    """Remove MicroK8s, with all that it holds."""
    host.root("snap", "remove", "microk8s", "--purge", seconds=REMOVE_SECONDS)


def _is_marked(_: Host, fact: Facts) -> str:
    is_marked = fact.has_our_limits or fact.is_ours or hosts_file.lines_of(fact.hosts_file)
    if is_marked:
        return "what we wrote is still there"
    return ""


def _clean(host: Host) -> None:
    # Kernel limits stay until the next boot: what else counts on them by now is not known.
    host.root("rm", "-f", SYSCTL_FILE, LOCK_FILE)
    # Of a host that was prepared, and on which nothing was installed.
    host.root(
        "sh", "-euc", f'! grep -qsx "{MARK}" {LAUNCH_FILE} || rm -rf {LAUNCH_FILE} {COMMON}/etc'
    )
    hosts_file.write(host, "")
    # What kubectl kept for root, and directories that are empty by now.
    empty = "rm -rf ~/.kube/cache; rmdir ~/.kube /var/snap/microk8s/common /var/snap/microk8s"
    host.root("sh", "-c", empty, check=False)
