"""A host's facts for MicroK8s and in general, printed by one script."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from trainyard.seams.ssh import facts as host_facts
from trainyard.seams.ssh import snaps
from trainyard.seams.ssh.connection import Connection
from trainyard.seams.ssh.facts import Fields, block, decoded, fact, under
from trainyard.seams.ssh.snaps import Snap

DATA = "/var/snap/microk8s/current"
LOCKS = f"{DATA}/var/lock"
COMMON = "/var/snap/microk8s/common"
LAUNCH_FILE = f"{COMMON}/.microk8s.yaml"
# Containerd looks into this directory every 5 s, loads the images there, and renames each file to
# NAME.tar.loaded (canonical/microk8s, microk8s-sideload-images-plugin.patch).
SIDELOAD = f"{COMMON}/etc/sideload"
LOADED = ".loaded"
# The first line of the launch file of a MicroK8s that Trainyard installed.
MARK = "# made by trainyard"
SYSCTL_FILE = "/etc/sysctl.d/60-trainyard-microk8s.conf"
# If snapd does not answer, `snap version` prints this version, with exit code 0. An empty
# `snap list` then proves nothing.
UNAVAILABLE = "unavailable"
# Kernel limits whose defaults MicroK8s exceeds: dqlite needs aio, file watchers need inotify.
SYSCTLS = {
    "fs.inotify.max_user_instances": 1024,
    "fs.inotify.max_user_watches": 1048576,
    "fs.aio-max-nr": 1048576,
}
_PLACES = (
    f"data={DATA} common={COMMON} sideload={SIDELOAD} locks={LOCKS} limits={SYSCTL_FILE} "
    f"launch={LAUNCH_FILE}"
)
_NAMES = f"{_PLACES} mark='{MARK}' sysctls='{' '.join(SYSCTLS)}'"
SCRIPT = r"""
[ -d /var/snap ] && disk=/var/snap || disk=/var
field disk "$(df -B1 --output=avail $disk | tail -n 1)"
for name in $sysctls; do
  field "sysctl.$name" "$(cat "/proc/sys/$(echo $name | tr . /)")"
done
command -v snap > /dev/null && field snapd "$(snap version | awk '$1 == "snapd" {print $2}')"
snap list microk8s 2> /dev/null | text snap
revision=$(readlink /snap/microk8s/current) \
  && field snap-bytes "$(stat -c %s /var/lib/snapd/snaps/microk8s_$revision.snap 2> /dev/null)"
find $sideload -maxdepth 1 -type f -printf '%s %f\n' 2> /dev/null | text images
[ -e $limits ] && field limits ours
for file in /etc/microk8s.yaml /root/snap/microk8s/common/.microk8s.yaml $launch; do
  [ -e $file ] && { grep -qx "$mark" $file && field ours yes || field foreign $file; }
done
[ -d $data ] || exit 0
for lock in clustered.lock stopped.lock; do [ -e $locks/$lock ] && field lock.$lock yes; done
# A killed join leaves this lock; a running join also has a process.
[ -e $locks/join-in-progress ] && ! ps -eo args= | grep -Eq '[m]icrok8s(-| )join|[w]rappers/join' \
  && field lock.join-in-progress yes
cat $data/var/kubernetes/backend/cluster.yaml 2> /dev/null | text members
# A worker keeps unused certificates from before its join.
used="kubelet proxy"
[ -e $data/var/lock/clustered.lock ] || used="$used ca server front-proxy-client"
for name in $used; do
  end=$(openssl x509 -enddate -noout -in $data/certs/$name.crt 2> /dev/null) && field certificate.$name.crt "${end#*=}"
done
for file in $data/args/certs.d/*/hosts.toml; do
  [ -e "$file" ] && text "trust.$(basename "$(dirname "$file")")" < "$file"
done
# The bytes of complete and unfinished layers.
field pulled "$(du -sb $common/var/lib/containerd/io.containerd.content.v1.content 2> /dev/null | cut -f 1)"
field cluster-dns "$(sed -n 's/^--cluster-dns[= ]//p' $data/args/kubelet 2> /dev/null)"
cat $data/args/traefik/provider.yaml 2> /dev/null | text endpoints
"""


@dataclass(frozen=True)
class Member:
    """A member of dqlite, the control planes' database, at IP:19001."""

    address: str
    is_voter: bool

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]


@dataclass(frozen=True)
class Facts(host_facts.Facts):
    """The facts of a host at one moment.

    `disk`: free bytes for snaps. `certificates`: when each certificate in use
    expires, in Unix seconds. `snap_bytes`: the size of the installed snap.
    `pulled`: bytes of image layers on the host, also of unfinished pulls.
    `images`: sizes of image files for side-loading, by file name. `members`:
    this host's list of dqlite's members. `trust`: containerd's hosts.toml by
    registry. `foreign_launch`: path of a launch file that an installation would
    read, and that Trainyard did not write. `cluster_dns`: the DNS address in
    the kubelet's arguments, or "". `is_ours`: Trainyard wrote the launch file,
    so it installed MicroK8s or is about to. `has_our_limits`: Trainyard wrote
    the file of kernel limits.
    """

    disk: int
    sysctls: Mapping[str, int]
    snapd: str
    snap: Snap | None
    snap_bytes: int
    images: Mapping[str, int]
    pulled: int
    locks: frozenset[str]
    members: tuple[Member, ...]
    trust: Mapping[str, str]
    certificates: Mapping[str, float]
    endpoints: str
    cluster_dns: str
    foreign_launch: str
    is_ours: bool
    has_our_limits: bool

    @property
    def node(self) -> str:
        """Return the name of the host's Kubernetes node."""
        return self.hostname.lower()

    @property
    def is_bare(self) -> bool:
        """Say whether MicroK8s is missing; False without snapd's answer."""
        return self.snap is None and self.snapd != UNAVAILABLE

    @property
    def is_worker(self) -> bool:
        return "clustered.lock" in self.locks

    @property
    def is_stopped(self) -> bool:
        return "stopped.lock" in self.locks or (self.snap is not None and self.snap.is_disabled)

    @property
    def is_half_joined(self) -> bool:
        """Say whether a join failed or was killed, and left its lock.

        A successful join removes the lock (join.py:1012).
        """
        return "join-in-progress" in self.locks

    @property
    def has_joined(self) -> bool:
        """Say whether the host's files show a cluster with other hosts."""
        return self.is_worker or any(not member.host.startswith("127.") for member in self.members)


def read(connection: Connection, *, now: float) -> Facts:
    """Ask a host for its facts.

    `now` is this machine's time in Unix seconds, to compare the clocks. Raises
    HostError without a readable answer.
    """
    return host_facts.read(connection, _NAMES + SCRIPT, of, now=now)


def of(fields: Fields, facts: host_facts.Facts) -> Facts:
    """Read the fields that SCRIPT printed.

    Raises ValueError for an unreadable field.
    """
    trust = under(fields, "trust.")
    ends = under(fields, "certificate.")
    limits = under(fields, "sysctl.")
    return Facts(
        **vars(facts),
        disk=fact(fields, "disk", lambda text: int(text or 0)),
        sysctls={name: fact(fields, f"sysctl.{name}", int) for name in limits},
        snapd=fields.get("snapd", ""),
        snap=fact(fields, "snap", lambda text: snaps.first(decoded(text))),
        snap_bytes=fact(fields, "snap-bytes", lambda text: int(text or 0)),
        images=fact(fields, "images", lambda text: _sizes(decoded(text))),
        pulled=fact(fields, "pulled", lambda text: int(text or 0)),
        locks=frozenset(under(fields, "lock.")),
        members=fact(fields, "members", lambda text: _members(decoded(text))),
        trust={registry: block(fields, f"trust.{registry}") for registry in trust},
        certificates={
            name: fact(fields, f"certificate.{name}", ssl.cert_time_to_seconds) for name in ends
        },
        endpoints=block(fields, "endpoints"),
        cluster_dns=fields.get("cluster-dns", ""),
        foreign_launch=fields.get("foreign", ""),
        is_ours="ours" in fields,
        has_our_limits="limits" in fields,
    )


def _sizes(listed: str) -> dict[str, int]:
    sizes = {}
    for line in listed.splitlines():
        size, _, name = line.partition(" ")
        sizes[name] = int(size)
    return sizes


def _members(text: str) -> tuple[Member, ...]:
    """Read dqlite's cluster.yaml, a list of Address, ID and Role.

    A member with Role 0, the default, votes. Raises ValueError for an
    incomplete file: MicroK8s rewrites it every 30 s.
    """
    try:
        entries = yaml.safe_load(text) or ()
    except yaml.YAMLError as error:
        raise ValueError("no YAML") from error
    return tuple(Member(str(entry["Address"]), entry.get("Role", 0) == 0) for entry in entries)
