"""MicroK8s on every host: what must be there before it, the snap of one channel, held, and running."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import yaml

from trainyard.backends.microk8s.facts import LAUNCH_FILE, MARK, SYSCTL_FILE, SYSCTLS, Facts
from trainyard.backends.microk8s.lab import Host, Lab, each_step
from trainyard.errors import RequestError
from trainyard.seams.ssh import hosts_file
from trainyard.steps import YES, Answer, Step, no
from trainyard.wording import counted

# Those of MicroK8s' own launch file, whose place ours takes (microk8s.default.yaml). Where a kubelet lacks them,
# `enable dns` restarts kubelets and API servers on all nodes, and a host that joins meanwhile has no DNS.
KUBELET_ARGUMENTS = {"--cluster-domain": "cluster.local", "--cluster-dns": "10.152.183.10"}
ADDONS = ("dns", "hostpath-storage")
# Some hundred MB of a snap, from far away.
INSTALL_SECONDS = 900.0
START_SECONDS = 180.0
KUBELET_PORT = 10250


def steps(lab: Lab, *, upgrade: bool) -> list[Step]:
    """Return the steps after which every host runs MicroK8s of the channel."""
    install = _install_step(lab)
    after = install.title
    return [_prepare_step(lab), install, *_upgrade_steps(lab, upgrade=upgrade, after=after), _start_step(lab, after)]


def _prepare_step(lab: Lab) -> Step:
    """Return the step after which kernel limits, host names and the launch file are as MicroK8s needs them."""
    facts = lab.facts()
    # Control planes look up the names of those that join (microk8s#2967, #3225). Sorted: who is the first may change.
    names = "".join(sorted(f"{host.ip} {facts[host.name].hostname}\n" for host in lab.hosts))

    def lacks(_: Host, fact: Facts) -> str:
        if any(fact.sysctls[name] < least for name, least in SYSCTLS.items()):
            return "lacks kernel limits, at which MicroK8s stops"
        known = hosts_file.lines_of(fact.hosts_file)
        if known != names:
            is_lacking = {*names.splitlines()} - {*known.splitlines()}
            return "lacks names of the others" if is_lacking else "has names of hosts that are not in the file"
        return "lacks MicroK8s' launch file" if fact.snap is None and not fact.is_ours else ""

    def prepare(host: Host) -> None:
        fact = lab.fact(host)
        limits = "".join(f"{key} = {max(least, fact.sysctls[key])}\n" for key, least in SYSCTLS.items())
        write = f"cat > {SYSCTL_FILE}; sysctl -q -p {SYSCTL_FILE}"
        host.root("sh", "-euc", write, stdin=limits.encode())
        hosts_file.write(host, names)
        if fact.snap is None:
            # DNS from the start: kubelets learn of it as they join.
            _write_launch_file(host, ADDONS if host is lab.first else ())

    return each_step(lab, f"Prepare {counted(len(lab.hosts), 'host')}", lacks, prepare)


def _write_launch_file(host: Host, addons: Sequence[str]) -> None:
    listed = [{"name": name} for name in addons]
    launch = yaml.safe_dump({"version": "0.1.0", "extraKubeletArgs": KUBELET_ARGUMENTS, "addons": listed})
    host.root("mkdir", "-p", str(Path(LAUNCH_FILE).parent))
    host.connection.put(LAUNCH_FILE, f"{MARK}\n{launch}".encode(), sudo=True)


def _install_step(lab: Lab) -> Step:
    def lacks(_: Host, fact: Facts) -> str:
        if fact.snap is None:
            return "not installed"
        return "" if fact.snap.is_held else "not held: snapd refreshes it at any hour"

    title = f"Install MicroK8s {lab.channel} on {counted(len(lab.hosts), 'host')}"
    return each_step(lab, title, lacks, lambda host: _install(host, lab.channel))


def _install(host: Host, channel: str) -> None:
    # One that is there already says so, and exits 0.
    host.root("snap", "install", "microk8s", "--classic", f"--channel={channel}", seconds=INSTALL_SECONDS)
    # Refreshes in the night end clusters (microk8s#1022, #2491).
    host.root("snap", "refresh", "--hold", "microk8s")


def install_again(host: Host, channel: str) -> None:
    """Install MicroK8s on a host from which it was removed, and which is to join the others."""
    # It went with the rest.
    _write_launch_file(host, ())
    _install(host, channel)


def _upgrade_steps(lab: Lab, *, upgrade: bool, after: str) -> list[Step]:
    """Return a step for each host whose channel is another, control planes first, one minor at a time.

    Raises RequestError unless that was asked for, and for a downgrade.
    """
    facts = lab.facts()
    found = []
    for host in lab.hosts:
        snap = facts[host.name].snap
        if snap is None or snap.channel == lab.channel:
            continue
        now, then = _minor(snap.channel), _minor(lab.channel)
        what = f"{host.name} runs MicroK8s {snap.channel}, and the file says {lab.channel}"
        if then < now:
            hint = f"Write `channel: {snap.channel}`, or remove MicroK8s from the host."
            raise RequestError(f"{what}: there is no way back", hint=hint)
        if not upgrade:
            hint = "Upgrade it, a host and a minor at a time: trainyard cluster.up --set microk8s.upgrade=true"
            raise RequestError(what, hint=hint)
        # All of it but the minor: `1.34-strict/stable` is another snap than `1.34/stable`, which wants --classic.
        rest = re.sub(r"^1\.\d+", "", lab.channel)
        for minor in range(now + (now != then), then + 1):
            channel = f"1.{minor}{rest}" if minor != then else lab.channel
            found.append((minor, _upgrade_step(lab, host, channel, after)))
    # No API server may be two minors ahead of another.
    return [step for _, step in sorted(found, key=lambda step: step[0])]


def _upgrade_step(lab: Lab, host: Host, channel: str, after: str) -> Step:
    def done() -> Answer:
        fact = lab.fact(host)
        now = fact.snap.channel if fact.snap else "nothing"
        if now != channel and (fact.snap is None or _minor(now) <= _minor(channel)):
            return no(f"{now} is installed")
        # One that has not joined is no node yet.
        return no("its node is not Ready") if fact.node in lab.nodes() and not lab.is_ready(host) else YES

    def refresh() -> None:
        host.root("snap", "refresh", "microk8s", f"--channel={channel}", seconds=INSTALL_SECONDS)
        host.root("snap", "refresh", "--hold", "microk8s")
        lab.changed()

    title = f"Upgrade {host.name} to {channel}"
    return Step(title, done, refresh, deadline=START_SECONDS, after=after, disruptive=True)


def _minor(channel: str) -> int:
    found = re.match(r"1\.(\d+)", channel)
    if found is None:
        raise RequestError(f"MicroK8s of {channel} has no version that is known", hint="Install one of a channel 1.N.")
    return int(found[1])


def _start_step(lab: Lab, after: str) -> Step:
    """Return the step after which the services of every host run; on workers `microk8s start` does nothing."""

    def lacks(_: Host, fact: Facts) -> str:
        return "its kubelet does not run" if fact.is_stopped or KUBELET_PORT not in fact.listening else ""

    return each_step(lab, "MicroK8s runs on every host", lacks, start, deadline=START_SECONDS, after=after)


def start(host: Host) -> None:
    """Start all services of a host, and let boots start them."""
    host.root("snap", "enable", "microk8s", check=False)
    host.microk8s("start", seconds=START_SECONDS, check=False)
    host.root("snap", "start", "--enable", "microk8s")
