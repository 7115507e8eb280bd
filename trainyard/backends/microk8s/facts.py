"""What one host is and has: asked by one script, as root, in one round trip."""

from __future__ import annotations

import base64
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from trainyard.seams.ssh.connection import Connection
from trainyard.seams.ssh.login import HostError

DATA = "/var/snap/microk8s/current"
# The first line of the launch file of a MicroK8s that we installed.
MARK = "# made by trainyard"
# Each line is NAME VALUE; of what has lines itself the value is base64. What a host lacks is left out.
SCRIPT = r"""
field() { printf '%s %s\n' "$1" "$2"; }
text() { printf '%s %s\n' "$1" "$(base64 -w0)"; }
data=/var/snap/microk8s/current
field clock "$(date +%s.%N)"
field hostname "$(hostname)"
field architecture "$(uname -m)"
field kernel "$(uname -r)"
field machine_id "$(cat /etc/machine-id 2> /dev/null)"
field memory "$(awk '/^MemTotal:/ {print $2 * 1024}' /proc/meminfo)"
[ -d /var/snap ] && disk=/var/snap || disk=/var
field disk "$(df -B1 --output=avail $disk | tail -n 1)"
ip -4 -o address show | text addresses
ip -4 route show | text routes
{ ss -Hlnt; ss -Hlnu; } | text listening
for name in fs.inotify.max_user_instances fs.inotify.max_user_watches fs.aio-max-nr; do
  field "sysctl.$name" "$(cat "/proc/sys/$(echo $name | tr . /)")"
done
field forward "$(iptables -S FORWARD 2> /dev/null | sed -n 's/^-P FORWARD //p')"
command -v snap > /dev/null && field snapd "$(snap version | awk '$1 == "snapd" {print $2}')"
snap list microk8s 2> /dev/null | text snap
field gpus "$(ls /proc/driver/nvidia/gpus 2> /dev/null | wc -l)"
nvidia=$(grep -ls 0x10de /sys/bus/pci/devices/*/vendor | sed 's/vendor$/class/')
field displays "$(cat /dev/null $nvidia | grep -c ^0x03)"
command -v docker > /dev/null && field docker yes
cat /etc/hosts | text hosts
[ -e /etc/sysctl.d/60-trainyard-microk8s.conf ] && field limits ours
grep -qsx "# made by trainyard" /var/snap/microk8s/common/.microk8s.yaml && field ours yes
[ -d $data ] || exit 0
for lock in clustered.lock stopped.lock; do [ -e $data/var/lock/$lock ] && field lock $lock; done
cat $data/var/kubernetes/backend/cluster.yaml 2> /dev/null | text members
# A worker keeps the others of the time before it joined.
used="kubelet proxy"
[ -e $data/var/lock/clustered.lock ] || used="$used ca server front-proxy-client"
for name in $used; do
  end=$(openssl x509 -enddate -noout -in $data/certs/$name.crt 2> /dev/null) && field certificate.$name.crt "${end#*=}"
done
for file in $data/args/certs.d/*/hosts.toml; do
  [ -e "$file" ] && text "trust.$(basename "$(dirname "$file")")" < "$file"
done
cat $data/args/traefik/provider.yaml 2> /dev/null | text endpoints
"""


@dataclass(frozen=True)
class Snap:
    """The snap as `snap list` shows it. `version` is as v1.34.2, `channel` as 1.34/stable."""

    version: str
    channel: str
    is_held: bool
    is_disabled: bool


@dataclass(frozen=True)
class Member:
    """A member of dqlite. `address` is IP:19001; a spare does not vote."""

    address: str
    is_voter: bool

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]


@dataclass(frozen=True)
class Facts:
    """A host at one moment. `memory` and `disk` are bytes; `skew` is what its clock is ahead of ours, in seconds.

    `certificates` are the ends of those that it uses, in Unix seconds. `gpus` are NVIDIA's that its driver has,
    `displays` those that are on its PCI bus.
    `is_ours`: MicroK8s was installed by us, or is about to be; `has_our_limits`: so were the kernel's limits written.
    """

    hostname: str
    architecture: str
    kernel: str
    machine_id: str
    memory: int
    disk: int
    skew: float
    addresses: Mapping[str, str]
    routes: str
    listening: frozenset[int]
    sysctls: Mapping[str, int]
    forward: str
    gpus: int
    displays: int
    snapd: str
    has_docker: bool
    hosts_file: str
    snap: Snap | None
    locks: frozenset[str]
    members: tuple[Member, ...]
    trust: Mapping[str, str]
    certificates: Mapping[str, float]
    endpoints: str
    is_ours: bool
    has_our_limits: bool

    @property
    def node(self) -> str:
        """Return the name that its kubelet registers: Kubernetes takes no capitals."""
        return self.hostname.lower()

    @property
    def is_worker(self) -> bool:
        return "clustered.lock" in self.locks

    @property
    def is_stopped(self) -> bool:
        return "stopped.lock" in self.locks or (self.snap is not None and self.snap.is_disabled)

    @property
    def has_joined(self) -> bool:
        """Say whether it is a node of a cluster with others: what it does alone goes on for ever."""
        return self.is_worker or len(self.members) > 1 or any(not _is_loopback(member) for member in self.members)


def read(connection: Connection, *, now: float) -> Facts:
    """Ask a host for its facts. Raises HostError where it cannot be asked; `now` is our clock, in seconds."""
    began = time.monotonic()
    ran = connection.sudo(["sh", "-c", SCRIPT])
    if ran.code != 0:
        last = ran.stderr.strip().rpartition("\n")[2]
        raise HostError(f"{connection.address.host} does not answer what it is", where=last or f"exit code {ran.code}")
    return parse(ran.stdout, now=now, seconds=time.monotonic() - began)


def parse(text: str, *, now: float, seconds: float = 0.0) -> Facts:
    """Return what the script printed; it was asked at `now`, and answered after `seconds`."""
    lines = [line.partition(" ") for line in text.splitlines()]
    fields = {name: value.strip() for name, _, value in lines if name != "lock"}

    ahead = float(fields["clock"]) - now

    def block(name: str) -> str:
        return base64.b64decode(fields.get(name, "")).decode(errors="replace")

    return Facts(
        hostname=fields["hostname"],
        architecture=fields["architecture"],
        kernel=fields["kernel"],
        machine_id=fields["machine_id"],
        memory=int(float(fields["memory"])),
        disk=int(fields.get("disk") or 0),
        # A host that answers late is not ahead for that.
        skew=max(ahead - seconds, min(ahead, 0.0)),
        addresses=dict(re.findall(r"^\d+: (\S+)\s+inet ([\d.]+)", block("addresses"), re.MULTILINE)),
        routes=block("routes"),
        listening=frozenset(int(port) for port in re.findall(r"\S+:(\d+)\s+\S+:\*", block("listening"))),
        sysctls={name.removeprefix("sysctl."): int(fields[name]) for name in fields if name.startswith("sysctl.")},
        forward=fields.get("forward", ""),
        gpus=int(fields.get("gpus") or 0),
        displays=int(fields.get("displays") or 0),
        snapd=fields.get("snapd", ""),
        has_docker="docker" in fields,
        hosts_file=block("hosts"),
        snap=_snap(block("snap")),
        locks=frozenset(value.strip() for name, _, value in lines if name == "lock"),
        members=_members(block("members")),
        trust={name.removeprefix("trust."): block(name) for name in fields if name.startswith("trust.")},
        certificates={
            name.removeprefix("certificate."): float(ssl.cert_time_to_seconds(fields[name]))
            for name in fields
            if name.startswith("certificate.")
        },
        endpoints=block("endpoints"),
        is_ours="ours" in fields,
        has_our_limits="limits" in fields,
    )


def _snap(listed: str) -> Snap | None:
    """Read `snap list`: a header, and Name Version Rev Tracking Publisher Notes."""
    lines = listed.splitlines()
    if len(lines) < 2:
        return None
    words = lines[1].split()
    notes = words[5].split(",")
    return Snap(words[1], words[3], is_held="held" in notes, is_disabled="disabled" in notes)


def _members(text: str) -> tuple[Member, ...]:
    """Read dqlite's cluster.yaml: a list of Address, ID, Role (0 votes; left out, it is 0)."""
    return tuple(Member(entry["Address"], entry.get("Role", 0) == 0) for entry in yaml.safe_load(text) or ())


def _is_loopback(member: Member) -> bool:
    return member.host.startswith("127.")
