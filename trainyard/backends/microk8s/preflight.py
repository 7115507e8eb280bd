"""Rules for hosts, checked before any change; one error has all problems."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainyard.backends.microk8s import host_checks
from trainyard.backends.microk8s.facts import UNAVAILABLE, Facts
from trainyard.backends.microk8s.lab import Host
from trainyard.errors import PrerequisiteError, Problem
from trainyard.seams.ssh.many import AGAIN
from trainyard.spec.units import GIB
from trainyard.wording import named

DISK = 2 * GIB
# The first snapd with `snap refresh --hold`; Debian 12 has 2.57.6, which is too old.
SNAPD = (2, 58)
# A new host's disk must hold three times an image's pulled bytes: see `_disk`.
IMAGES = 3
# The ranges of pods and services.
RANGES = ("10.1.0.0/16", "10.152.183.0/24")
# The names of Kubernetes' own interfaces.
_OWN_INTERFACES = re.compile(r"\bdev (?:cali|vxlan\.calico|cni|kube|lo\b)")
PORTS = {
    16443: "the API server",
    25000: "the cluster agent",
    19001: "dqlite",
    10250: "the kubelet",
    4789: "the network between pods",
}
REGISTRY_PORT = 32000


@dataclass(frozen=True)
class Desired:
    """The needs of the cluster file.

    All hosts together need `gpus`; each host pulls `image` bytes.
    """

    gpus: int = 0
    image: int = 0
    has_registry: bool = False


def refuse(
    hosts: Sequence[Host],
    facts: Mapping[str, Facts],
    desired: Desired,
    silent: Sequence[Problem] = (),
) -> None:
    """Raise one PrerequisiteError with all problems.

    `silent` are the problems of hosts that did not answer. If there are no
    other problems, raises nothing.
    """
    found = tuple(problems(hosts, facts, desired))
    if found:
        raise PrerequisiteError(
            "some hosts cannot become a Kubernetes yet", problems=(*silent, *found), hint=AGAIN
        )


def problems(
    hosts: Sequence[Host], facts: Mapping[str, Facts], desired: Desired
) -> Iterator[Problem]:
    """Yield each host's problems, then those that only a comparison shows."""
    answered = [host for host in hosts if host.name in facts]
    for host in answered:
        for message in _alone(host, facts[host.name], desired):
            if message:
                yield Problem(host.name, message)

    # A host that did not answer may have the missing GPUs.
    gpus = desired.gpus if len(answered) == len(hosts) else 0
    yield from host_checks.together(facts, gpus)
    yield from _of_other_clusters(facts, {host.ip for host in hosts})


def _alone(host: Host, fact: Facts, desired: Desired) -> Iterator[str | None]:
    ports = PORTS if fact.is_bare else {}
    yield from host_checks.alone(fact, host, ports, desired.gpus)
    yield _disk(fact, desired)
    yield _registry_port(fact, desired)
    for rule in RULES:
        yield rule(fact, host)


def _of_other_clusters(facts: Mapping[str, Facts], ours: set[str]) -> Iterator[Problem]:
    """Yield a problem for each host in a cluster without our control planes."""
    for host, fact in facts.items():
        if fact.is_worker:
            control = set(re.findall(r"\d+(?:\.\d+){3}", fact.endpoints))
        else:
            members = {member.host for member in fact.members}
            control = {ip for ip in members if not ip.startswith("127.")}
        if control and not control & ours:
            planes = named(sorted(control))
            message = (
                f"is a node of another cluster, of {planes}: if the host may leave it, "
                "microk8s leave"
            )
            yield Problem(host, message)


def remarks(hosts: Sequence[Host], facts: Mapping[str, Facts]) -> str:
    """Return a warning if new hosts' firewalls may separate pods, else "".

    A warning is enough: MicroK8s itself accepts the packets of its pods
    (wrappers/run-kubelite-with-args). Hosts with Docker get no warning: Docker
    accepts the packets of its containers in the same way.
    """
    dropping = []
    for host in hosts:
        fact = facts[host.name]
        if fact.is_bare and fact.forward == "DROP" and not fact.has_docker:
            dropping.append(host.name)
    remedy = "if pods do not reach each other: sudo iptables -P FORWARD ACCEPT"
    if dropping:
        return f"{named(dropping)}: the firewall drops forwarded packets; {remedy}"
    return ""


def _snapd(fact: Facts, host: Host) -> str | None:
    if not fact.snapd:
        return "has no snapd: sudo apt-get install -y snapd"
    if fact.snapd == UNAVAILABLE:
        return "its snapd does not run: sudo systemctl start snapd.socket"
    found = re.match(r"(\d+)\.(\d+)", fact.snapd)
    if found is None or (int(found[1]), int(found[2])) >= SNAPD:
        return None
    least = ".".join(map(str, SNAPD))
    return (
        f"its snapd is {fact.snapd}, and only {least} or newer can hold a refresh: sudo snap "
        "install snapd"
    )


def _memory(fact: Facts, host: Host) -> str | None:
    role = "a worker"
    least = GIB
    if host.is_control_plane:
        role = "a control plane"
        least = 2 * GIB

    if fact.memory >= least:
        return None
    return f"has {fact.memory / GIB:.1f} GiB of memory, and {role} needs {least // GIB} GiB"


def _disk(fact: Facts, desired: Desired) -> str | None:
    # The disk holds the pulled layers, the unpacked files, and another copy during a change. A host
    # with MicroK8s may have the image already.
    least = max(DISK, IMAGES * desired.image if fact.is_bare else 0)
    if fact.disk >= least:
        return None
    return f"has {fact.disk / GIB:.1f} GiB of disk free in /var/snap, and needs {least / GIB:.1f}"


def _ranges(fact: Facts, host: Host) -> str | None:
    if not fact.is_bare:
        return None
    for line in fact.routes.splitlines():
        target = line.partition(" ")[0]
        if "/" not in target or _OWN_INTERFACES.search(line):
            continue
        for network in map(ipaddress.ip_network, RANGES):
            if ipaddress.ip_network(target, strict=False).overlaps(network):
                return f"its network {target} overlaps with MicroK8s' {network}"
    return None


def _registry_port(fact: Facts, desired: Desired) -> str | None:
    # The addon's own registry is a NodePort, so no process of MicroK8s listens on the port.
    if not desired.has_registry or REGISTRY_PORT not in fact.listening:
        return None
    return (
        f"something else listens on {REGISTRY_PORT}, the port of MicroK8s' registry: set "
        "`microk8s.registry: false`"
    )


def _launch(fact: Facts, host: Host) -> str | None:
    if not fact.is_bare or not fact.foreign_launch:
        return None
    return (
        "has a launch configuration that Trainyard did not write: sudo mv "
        f"{fact.foreign_launch} elsewhere"
    )


def _docker_later(fact: Facts, host: Host) -> str | None:
    """Return the problem of an installed Docker that has not started.

    The problem concerns hosts with MicroK8s that have not joined. When Docker
    starts, MicroK8s would mistake the new bridge for a changed host address,
    and remove every container.
    """
    if fact.snap is None or fact.has_joined:
        return None
    if not fact.has_docker or "docker0" in fact.addresses.values():
        return None
    return (
        "Docker was installed after MicroK8s, which would mistake Docker's address for the host's: "
        "start Docker before this host joins"
    )


RULES: Sequence[Callable[[Facts, Host], str | None]] = (
    _snapd,
    _memory,
    _ranges,
    _launch,
    _docker_later,
)
