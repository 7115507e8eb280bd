"""Prepare every host for MicroK8s; install, hold, upgrade and start it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from trainyard.backends.microk8s import files, offline
from trainyard.backends.microk8s.facts import COMMON, LAUNCH_FILE, SYSCTL_FILE, SYSCTLS, Facts
from trainyard.backends.microk8s.lab import Host, Lab, each_step
from trainyard.backends.microk8s.offline import INSTALL_SECONDS
from trainyard.errors import RequestError
from trainyard.seams.ssh import hosts_file
from trainyard.seams.ssh.snaps import FROM_FILE
from trainyard.steps import YES, Answer, Step, no
from trainyard.wording import counted

START_SECONDS = 180.0
INFO_SECONDS = 20
# `snap info` prints one of these signs instead of a closed channel's version (snapd,
# cmd/snap/cmd_info.go). Each text says how that affects an installation.
CLOSED = {
    "^": "an installation takes the next safer channel, and this one gets no updates",
    "--": "nothing can be installed from it",
}
KUBELET_PORT = 10250


def steps(lab: Lab, *, upgrade: bool) -> list[Step]:
    """Return steps that prepare hosts, and install or upgrade MicroK8s."""
    steps = [_prepare_step(lab)]
    if lab.images:
        steps.append(offline.put_step(lab))
    install = _install_step(lab)
    start = _start_step(lab, install.id)
    steps += [install, *_upgrade_steps(lab, upgrade=upgrade, after=install.id), start]
    if lab.images:
        steps.append(offline.loaded_step(lab, after=start.id))
    return steps


def closed_channel(lab: Lab, facts: Mapping[str, Facts]) -> str:
    """Return a warning if the channel of an installation is closed, else "".

    The first host without MicroK8s asks the store. Without an answer there is
    no warning, because the installation will fail.
    """
    bare = [host for host in lab.hosts if facts[host.name].is_bare]
    if lab.snaps or not bare:
        return ""
    # Without `--unicode=never` the signs depend on the host's language.
    asked = ("timeout", str(INFO_SECONDS), "snap", "info", "--unicode=never", "microk8s")
    listed = bare[0].root(*asked, check=False).stdout
    shown = re.search(rf"^\s+{re.escape(lab.channel)}:\s+(\S+)", listed, re.MULTILINE)
    what = CLOSED.get(shown[1]) if shown else None
    if what:
        return f"{lab.channel} is closed: {what}; snap info microk8s lists the open ones"
    return ""


def _prepare_step(lab: Lab) -> Step:
    """Return the step that writes kernel limits, /etc/hosts and launch file."""
    facts = lab.facts()
    names = host_names(lab, facts)

    def lacks(_: Host, fact: Facts) -> str:
        if any(fact.sysctls[name] < least for name, least in SYSCTLS.items()):
            return "its kernel limits are too low for MicroK8s"

        known = hosts_file.lines_of(fact.hosts_file)
        if known != names:
            is_lacking = {*names.splitlines()} - {*known.splitlines()}
            if is_lacking:
                return "lacks the names of other hosts"
            return "has the names of hosts that are not in the file"
        if fact.snap is None and not fact.is_ours:
            return "lacks MicroK8s' launch file"

        return ""

    def prepare(host: Host) -> None:
        fact = lab.fact(host)
        write = f"cat > {SYSCTL_FILE}; sysctl -q -p {SYSCTL_FILE}"
        host.root("sh", "-euc", write, stdin=files.limits(fact.sysctls))
        hosts_file.write(host, names)
        if fact.snap is None:
            _write_launch_file(host, lab)

    title = f"Prepare {counted(len(lab.hosts), 'host')}"
    return each_step(lab, "prepare-hosts", title, lacks, prepare)


def host_names(lab: Lab, facts: Mapping[str, Facts]) -> str:
    """Return the lines of all hosts for /etc/hosts.

    Control planes look joining hosts up (microk8s#2967, #3225).
    """
    # The order of hosts may change with the first control plane, so the lines are sorted.
    return "".join(sorted(f"{host.ip} {facts[host.name].hostname}\n" for host in lab.hosts))


def _write_launch_file(host: Host, lab: Lab) -> None:
    host.root("mkdir", "-p", COMMON)
    launch = files.launch(is_first=host is lab.first, mirrors=lab.mirrors)
    host.connection.put(LAUNCH_FILE, launch)


def _install_step(lab: Lab) -> Step:
    def lacks(_: Host, fact: Facts) -> str:
        if fact.snap is None:
            return "not installed"
        if fact.snap.is_held:
            return ""
        return "not held: snapd refreshes it at any hour"

    title = f"Install MicroK8s {lab.release} on {counted(len(lab.hosts), 'host')}"
    return each_step(lab, "install-microk8s", title, lacks, lambda host: _install(host, lab))


def _install(host: Host, lab: Lab) -> None:
    if lab.snaps:
        # Unlike the store's snap, a snap file would be installed a second time.
        if lab.fact(host).snap is None:
            offline.install(host, lab)
    else:
        # If MicroK8s is installed already, this does nothing and exits 0.
        host.root(
            "snap",
            "install",
            "microk8s",
            "--classic",
            f"--channel={lab.channel}",
            seconds=INSTALL_SECONDS,
        )

    # Without a hold, snapd refreshes MicroK8s at any time, which ended clusters
    # (microk8s#1022, #2491).
    host.root("snap", "refresh", "--hold", "microk8s")


def install_again(host: Host, lab: Lab) -> None:
    """Install MicroK8s again after a purge, so that the host can join."""
    lab.changed()
    # The purge has removed the launch file, too.
    _write_launch_file(host, lab)
    _install(host, lab)


def _upgrade_steps(lab: Lab, *, upgrade: bool, after: str) -> list[Step]:
    """Return a step for each host and each minor version up to the channel.

    Within a version, control planes come first. A MicroK8s from a snap file
    gets no step. Raises RequestError for a downgrade, for another channel if
    `upgrade` is False, for a MicroK8s that differs from the snap file, and for
    a MicroK8s from a file that has another minor version than the channel.
    """
    facts = lab.facts()
    found = []
    for host in lab.hosts:
        snap = facts[host.name].snap
        if lab.snaps:
            offline.refuse_another(lab, host, facts[host.name])
            continue
        if snap is None or snap.channel == lab.channel:
            continue
        if snap.channel == FROM_FILE:
            _refuse_other_minor(lab, host, snap.version)
            continue

        now = _minor(snap.channel)
        then = _minor(lab.channel)
        what = f"{host.name} runs MicroK8s {snap.channel}, and the file says {lab.channel}"

        if then < now:
            hint = f"Write `channel: {snap.channel}`, or remove MicroK8s from the host."
            raise RequestError(f"{what}: a downgrade is impossible", hint=hint)
        if not upgrade:
            hint = (
                "Upgrade one host and one minor version at a time: trainyard cluster.up --set "
                "microk8s.upgrade=true"
            )
            raise RequestError(what, hint=hint)

        # Upgrades change only the minor version of the channel and keep the rest: `1.34/stable`
        # needs --classic, `1.34-strict/stable` does not.
        rest = re.sub(r"^1\.\d+", "", lab.channel)
        for minor in range(now + (now != then), then + 1):
            channel = f"1.{minor}{rest}" if minor != then else lab.channel
            found.append((minor, _upgrade_step(lab, host, channel, after)))

    # All hosts get a minor version before any host gets the next: API servers may differ by one.
    return [step for _, step in sorted(found, key=lambda step: step[0])]


def _refuse_other_minor(lab: Lab, host: Host, version: str) -> None:
    """Raise RequestError for another minor version than the channel's.

    A MicroK8s from a file has no channel, so its version is compared.
    """
    if _minor(version.removeprefix("v")) != _minor(lab.channel):
        raise RequestError(
            f"{host.name} runs MicroK8s {version}, which was installed from a file, and the file "
            f"says {lab.channel}",
            hint=f"On {host.name}: sudo snap refresh microk8s --channel={lab.channel}. Or name the "
            "snap's files in the cluster file: microk8s.snap.",
        )


def _upgrade_step(lab: Lab, host: Host, channel: str, after: str) -> Step:
    def done() -> Answer:
        fact = lab.fact(host)
        now = fact.snap.channel if fact.snap else "nothing"
        if now != channel and (fact.snap is None or _minor(now) <= _minor(channel)):
            return no(f"{now} is installed")
        # A host that has not joined has no node that could be Ready.
        if fact.node in lab.nodes() and not lab.is_ready(host):
            return no("its node is not Ready")
        return YES

    def refresh() -> None:
        host.root("snap", "refresh", "microk8s", f"--channel={channel}", seconds=INSTALL_SECONDS)
        host.root("snap", "refresh", "--hold", "microk8s")
        lab.changed()

    title = f"Upgrade {host.name} to {channel}"
    id = f"upgrade:{host.name}:{channel}"
    return Step(id, title, done, refresh, deadline=START_SECONDS, after=after, disruptive=True)


def _minor(channel: str) -> int:
    found = re.match(r"1\.(\d+)", channel)
    if found is None:
        raise RequestError(
            f"MicroK8s of {channel} has no known version",
            hint="There: sudo snap switch microk8s --channel=1.N/stable, N as in its version.",
        )
    return int(found[1])


def _start_step(lab: Lab, after: str) -> Step:
    def lacks(_: Host, fact: Facts) -> str:
        if fact.is_stopped or KUBELET_PORT not in fact.listening:
            return "its kubelet does not run"
        return ""

    title = "MicroK8s runs on every host"
    return each_step(
        lab, "start-microk8s", title, lacks, start, deadline=START_SECONDS, after=after
    )


def start(host: Host) -> None:
    """Start all services of a host, now and at each boot.

    `microk8s start` does nothing on workers, so snap starts the services as
    well.
    """
    host.root("snap", "enable", "microk8s", check=False)
    host.microk8s("start", seconds=START_SECONDS, check=False)
    host.root("snap", "start", "--enable", "microk8s")
