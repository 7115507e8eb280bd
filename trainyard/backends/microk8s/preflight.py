"""What is wrong with the hosts before anything is done to them: every rule, every host, one
table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainyard.backends.microk8s import host_checks
from trainyard.backends.microk8s.facts import UNAVAILABLE, Facts
from trainyard.backends.microk8s.host_checks import GIB
from trainyard.backends.microk8s.lab import Host
from trainyard.errors import PrerequisiteError, Problem
from trainyard.seams.ssh.many import AGAIN
from trainyard.wording import named

DISK = 2 * GIB
# The first with `snap refresh --hold`: Debian 12 has 2.57.6.
SNAPD = (2, 58)
# So many times what is pulled of an image must fit on a new host.
IMAGES = 3
# Of pods and services.
RANGES = ("10.1.0.0/16", "10.152.183.0/24")
# What Kubernetes' own interfaces are called.
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
    """What the cluster file asks of all hosts together. `image` is how many bytes of its image each
    pulls.
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
    """Raise PrerequisiteError with everything that is wrong, host by host; and with those that give
    no facts.
    """
    if found := tuple(problems(hosts, facts, desired)):
        raise PrerequisiteError(
            "some hosts cannot become a Kubernetes yet", problems=(*silent, *found), hint=AGAIN
        )


def problems(
    hosts: Sequence[Host], facts: Mapping[str, Facts], desired: Desired
) -> Iterator[Problem]:
    """Yield what is wrong, by host: first what each shows alone, then what they show together."""
    answered = [host for host in hosts if host.name in facts]
    for host in answered:
        fact = facts[host.name]
        ports = PORTS if fact.is_bare else {}
        found = [
            *host_checks.alone(fact, host.ip, ports, desired.gpus, address=host.name),
            _disk(fact, desired),
        ]
        found += [_registry_port(fact, desired), *(rule(fact, host) for rule in RULES)]
        for message in found:
            if message:
                yield Problem(host.name, message)

    # Who gives no facts may have the GPUs.
    yield from host_checks.together(facts, desired.gpus if len(answered) == len(hosts) else 0)
    yield from _of_others(facts, {host.ip for host in hosts})


def _of_others(facts: Mapping[str, Facts], ours: set[str]) -> Iterator[Problem]:
    """Yield the hosts that are nodes of a cluster with hosts that the file does not name."""
    for host, fact in facts.items():
        members = {member.host for member in fact.members if not member.host.startswith("127.")}
        if fact.is_worker:
            control = set(re.findall(r"\d+(?:\.\d+){3}", fact.endpoints))
        else:
            control = members
        if control and not control & ours:
            yield Problem(
                host,
                f"is a node of another cluster, of {named(sorted(control))}: microk8s leave, if "
                "it may",
            )


def remarks(hosts: Sequence[Host], facts: Mapping[str, Facts]) -> str:
    """Return what may keep pods from each other on hosts that are still bare, "" where nothing
    does.

    MicroK8s accepts the packets of its pods itself (wrappers/run-kubelite-with-args), as Docker
    does.
    """
    dropping = []
    for host in hosts:
        if (fact := facts[host.name]).is_bare and fact.forward == "DROP" and not fact.has_docker:
            dropping.append(host.name)
    remedy = "if pods do not reach each other: sudo iptables -P FORWARD ACCEPT"
    if dropping:
        return f"{named(dropping)}: the firewall drops what is forwarded; {remedy}"
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
        f"its snapd is {fact.snapd}, and a refresh is held by {least} and newer: sudo snap "
        "install snapd"
    )


def _memory(fact: Facts, host: Host) -> str | None:
    return host_checks.memory(
        fact, *(("a control plane", 2 * GIB) if host.is_control_plane else ("a worker", GIB))
    )


def _disk(fact: Facts, desired: Desired) -> str | None:
    # Pulled, unpacked, and once more while it changes; who runs already may hold it.
    least = max(DISK, IMAGES * desired.image if fact.is_bare else 0)
    if fact.disk >= least:
        return None
    return f"has {fact.disk / GIB:.1f} GiB of disk free in /var/snap, and needs {least / GIB:.1f}"


def _ranges(fact: Facts, host: Host) -> str | None:
    if fact.is_bare:
        return host_checks.overlap(fact, RANGES, _OWN_INTERFACES, of="MicroK8s'")
    return None


def _registry_port(fact: Facts, desired: Desired) -> str | None:
    # The addon itself is a NodePort: packets are led there, and nobody listens.
    if not desired.has_registry or REGISTRY_PORT not in fact.listening:
        return None
    return (
        f"something else listens on {REGISTRY_PORT}, where MicroK8s' registry is to be: "
        "microk8s.registry: false"
    )


def _launch(fact: Facts, host: Host) -> str | None:
    if not fact.is_bare or not fact.foreign_launch:
        return None
    return (
        "has a launch configuration that is not of Trainyard's making: sudo mv "
        f"{fact.foreign_launch} elsewhere"
    )


def _docker_later(fact: Facts, host: Host) -> str | None:
    """Say that MicroK8s will take Docker's bridge for a change of its address, and remove every
    container.
    """
    if (
        fact.snap is None
        or fact.has_joined
        or not fact.has_docker
        or "docker0" in fact.addresses.values()
    ):
        return None
    return (
        "Docker came after MicroK8s, which has not joined and takes new addresses for its "
        "own: start Docker first"
    )


RULES: Sequence[Callable[[Facts, Host], str | None]] = (
    _snapd,
    _memory,
    _ranges,
    _launch,
    _docker_later,
)
