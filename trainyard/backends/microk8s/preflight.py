"""What is wrong with the hosts before anything is done to them: every rule, every host, one table."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from trainyard.backends.microk8s.facts import Facts
from trainyard.errors import PrerequisiteError, Problem
from trainyard.wording import counted, named

GIB = 2**30
ARCHITECTURES = ("x86_64", "aarch64")
# The least that runs MicroK8s' Kubernetes (its documentation asks for 4.15 and newer).
KERNEL = (4, 15)
MEMORY = 1 * GIB
CONTROL_PLANE_MEMORY = 2 * GIB
DISK = 2 * GIB
# So many times what is pulled of an image must fit on a new host.
IMAGES = 3
# Certificates and leases of hosts whose clocks are further apart are not valid for each other.
SKEW_SECONDS = 30.0
PODS = ipaddress.ip_network("10.1.0.0/16")
SERVICES = ipaddress.ip_network("10.152.183.0/24")
# What Kubernetes' own interfaces are called.
_OWN_INTERFACES = re.compile(r"\bdev (?:cali|vxlan\.calico|cni|kube|lo\b)")
PORTS = {
    16443: "the API server",
    25000: "the cluster agent",
    19001: "dqlite",
    10250: "the kubelet",
    4789: "the network between pods",
}


@dataclass(frozen=True)
class Desired:
    """What the cluster file asks of one host. `ip`: by which the others reach it.

    `gpus` are those that it asks of all hosts together; `image` is how many bytes of the cluster's image are pulled.
    """

    ip: str
    is_control_plane: bool
    gpus: int = 0
    image: int = 0


Rule = Callable[[Facts, Desired], str | None]


def refuse(facts: Mapping[str, Facts], desired: Mapping[str, Desired], silent: Sequence[Problem] = ()) -> None:
    """Raise PrerequisiteError with everything that is wrong, host by host; and with those that give no facts."""
    found = tuple(problems(facts, desired))
    if found:
        raise PrerequisiteError(
            "some hosts cannot become a Kubernetes as they are",
            problems=(*silent, *found),
            hint="Mend them, and repeat the same command; the others wait.",
        )


def problems(facts: Mapping[str, Facts], desired: Mapping[str, Desired]) -> Iterator[Problem]:
    """Yield what is wrong, by host: first what each shows alone, then what they show together."""
    for host, fact in facts.items():
        for rule in RULES:
            message = rule(fact, desired[host])
            if message:
                yield Problem(host, message)
    yield from _alike(facts, "host name", lambda fact: fact.node, "sudo hostnamectl set-hostname NAME")
    again = "sudo rm /etc/machine-id && sudo systemd-machine-id-setup, then reboot"
    yield from _alike(facts, "machine id", lambda fact: fact.machine_id, again)
    yield from _skewed(facts)
    yield from _too_few_gpus(facts, desired)
    yield from _of_others(facts, desired)


def _alike(facts: Mapping[str, Facts], what: str, value: Callable[[Facts], str], remedy: str) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for host, fact in facts.items():
        earlier = first.setdefault(value(fact), host)
        if value(fact) and earlier != host:
            yield Problem(host, f"has the {what} of {earlier}, {value(fact)}: {remedy}")


def _skewed(facts: Mapping[str, Facts]) -> Iterator[Problem]:
    skews = [fact.skew for fact in facts.values()]
    # Of two that differ, our own clock says which is wrong.
    middle = median(skews if len(skews) % 2 else [*skews, 0.0])
    for host, fact in facts.items():
        off = fact.skew - middle
        if abs(off) > SKEW_SECONDS:
            direction = "ahead of" if off > 0 else "behind"
            yield Problem(host, f"its clock is {abs(off):.0f} s {direction} the others': sudo timedatectl set-ntp true")


def _too_few_gpus(facts: Mapping[str, Facts], desired: Mapping[str, Desired]) -> Iterator[Problem]:
    # Those without a driver are said host by host.
    has = sum(max(fact.gpus, fact.displays) for fact in facts.values())
    asked = max((desired.gpus for desired in desired.values()), default=0)
    if has < asked and len(facts) == len(desired):
        yield Problem("all hosts", f"have {counted(has, 'GPU')} together, and the nodes of the cluster ask for {asked}")


def _of_others(facts: Mapping[str, Facts], desired: Mapping[str, Desired]) -> Iterator[Problem]:
    """Yield the hosts that are nodes of a cluster with hosts that the file does not name."""
    ours = {desired.ip for desired in desired.values()}
    for host, fact in facts.items():
        members = {member.host for member in fact.members if not member.host.startswith("127.")}
        control = set(re.findall(r"\d+(?:\.\d+){3}", fact.endpoints)) if fact.is_worker else members
        if control and not control & ours:
            yield Problem(host, f"is a node of another cluster, of {named(sorted(control))}: microk8s leave, if it may")


def _snapd(fact: Facts, desired: Desired) -> str | None:
    return None if fact.snapd else "has no snapd: sudo apt-get install -y snapd"


def _architecture(fact: Facts, desired: Desired) -> str | None:
    if fact.architecture in ARCHITECTURES:
        return None
    return f"is {fact.architecture}, and Ray is made for {' and '.join(ARCHITECTURES)}"


def _kernel(fact: Facts, desired: Desired) -> str | None:
    found = re.match(r"(\d+)\.(\d+)", fact.kernel)
    if found is None or (int(found[1]), int(found[2])) >= KERNEL:
        return None
    return f"its kernel is {fact.kernel}, and Kubernetes needs {KERNEL[0]}.{KERNEL[1]} or newer"


def _memory(fact: Facts, desired: Desired) -> str | None:
    least = CONTROL_PLANE_MEMORY if desired.is_control_plane else MEMORY
    if fact.memory >= least:
        return None
    role = "a control plane" if desired.is_control_plane else "a worker"
    return f"has {fact.memory / GIB:.1f} GiB of memory, and {role} needs {least // GIB} GiB"


def _disk(fact: Facts, desired: Desired) -> str | None:
    # Pulled, unpacked, and once more while it changes; who runs already may hold it.
    least = max(DISK, IMAGES * desired.image if fact.snap is None else 0)
    if fact.disk >= least:
        return None
    return f"has {fact.disk / GIB:.1f} GiB of disk free in /var/snap, and needs {least / GIB:.1f}"


def _route(fact: Facts, desired: Desired) -> str | None:
    return None if re.search("^default ", fact.routes, re.MULTILINE) else "has no default route, which MicroK8s needs"


def _address(fact: Facts, desired: Desired) -> str | None:
    if desired.ip in fact.addresses.values():
        return None
    has = named(sorted(address for name, address in fact.addresses.items() if name != "lo"))
    return f"{desired.ip} is no address of its interfaces ({has}): say by which the others reach it, `ip:`"


def _ranges(fact: Facts, desired: Desired) -> str | None:
    for line in fact.routes.splitlines():
        target = line.partition(" ")[0]
        if "/" not in target or _OWN_INTERFACES.search(line):
            continue
        for network in (PODS, SERVICES):
            if fact.snap is None and ipaddress.ip_network(target, strict=False).overlaps(network):
                return f"its network {target} overlaps with MicroK8s' {network}"
    return None


def _ports(fact: Facts, desired: Desired) -> str | None:
    taken = [f"{port} ({what})" for port, what in PORTS.items() if port in fact.listening and fact.snap is None]
    return f"something else listens on {named(taken)}" if taken else None


def _forward(fact: Facts, desired: Desired) -> str | None:
    if fact.forward != "DROP" or fact.has_docker:
        return None
    return "its firewall drops what is forwarded, and so what pods send: sudo iptables -P FORWARD ACCEPT"


def _node_name(fact: Facts, desired: Desired) -> str | None:
    if re.fullmatch(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", fact.node):
        return None
    return f"its host name {fact.hostname} is no name of a node: sudo hostnamectl set-hostname NAME"


def _driver(fact: Facts, desired: Desired) -> str | None:
    if not desired.gpus or not fact.displays or fact.gpus:
        return None
    return f"has {counted(fact.displays, 'NVIDIA GPU')} and no driver: sudo ubuntu-drivers install --gpgpu"


def _docker_later(fact: Facts, desired: Desired) -> str | None:
    """Say that MicroK8s will take Docker's bridge for a change of its address, and remove every container."""
    if fact.snap is None or fact.has_joined or not fact.has_docker or "docker0" in fact.addresses:
        return None
    return (
        "Docker came after MicroK8s, which has not joined yet and takes new addresses for its own: start Docker first"
    )


RULES: Sequence[Rule] = (
    _snapd,
    _architecture,
    _kernel,
    _memory,
    _disk,
    _route,
    _address,
    _ranges,
    _ports,
    _forward,
    _node_name,
    _driver,
    _docker_later,
)
