"""Checks of hosts with SSH that do not depend on MicroK8s."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from statistics import median

from trainyard.errors import Problem
from trainyard.seams.ssh.facts import Facts
from trainyard.seams.ssh.hosts import Host
from trainyard.wording import counted, named

ARCHITECTURES = ("x86_64", "aarch64")
# The oldest kernel for today's Kubernetes: MicroK8s' documentation asks for 4.15 or newer.
KERNEL = (4, 15)
# With a larger clock skew, hosts reject each other's certificates and leases.
SKEW_SECONDS = 30.0


def alone(fact: Facts, host: Host, ports: Mapping[int, str], gpus: int) -> Iterator[str]:
    """Yield the problems of one host.

    `ports` must be free. `gpus` is the total number of GPUs that the cluster
    needs.
    """
    messages = [
        _architecture(fact),
        _kernel(fact),
        _route(fact),
        _address(fact, host.ip),
        _ports(fact, ports),
        _hostname(fact, host.name),
    ]
    if gpus:
        messages.append(_driver(fact))
    yield from filter(None, messages)


def together(facts: Mapping[str, Facts], gpus: int) -> Iterator[Problem]:
    """Yield the problems that a comparison of hosts shows."""
    remedy = "sudo hostnamectl set-hostname NAME"
    yield from _alike(facts, "host name", lambda fact: fact.hostname.lower(), remedy)
    remedy = "sudo rm /etc/machine-id && sudo systemd-machine-id-setup, then reboot"
    yield from _alike(facts, "machine id", lambda fact: fact.machine_id, remedy)
    yield from _skewed(facts)

    # GPUs without a driver count, because `alone` already reports them.
    has = sum(max(fact.gpus, fact.displays) for fact in facts.values())
    if has < gpus:
        together = f"have {counted(has, 'GPU')} together"
        yield Problem("all hosts", f"{together}, and the nodes of the cluster ask for {gpus}")


def _alike(
    facts: Mapping[str, Facts], noun: str, read: Callable[[Facts], str], remedy: str
) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for host, fact in facts.items():
        value = read(fact)
        earlier = first.setdefault(value, host)
        if value and earlier != host:
            yield Problem(host, f"has the {noun} of {earlier}, {value}: {remedy}")


def _skewed(facts: Mapping[str, Facts]) -> Iterator[Problem]:
    skews = [fact.skew for fact in facts.values()]
    # With an even number of hosts, this machine's clock is added. Then the median is a single
    # clock, and decides which of two differing hosts is wrong.
    middle = median(skews if len(skews) % 2 else [*skews, 0.0])
    for host, fact in facts.items():
        off = fact.skew - middle
        if abs(off) <= SKEW_SECONDS:
            continue
        much = f"{abs(off):.0f} s" if abs(off) < 120 else f"{abs(off) / 60:.0f} min"
        direction = "ahead of" if off > 0 else "behind"
        remedy = "sudo timedatectl set-ntp true"
        yield Problem(host, f"its clock is {much} {direction} the others': {remedy}")


def _architecture(fact: Facts) -> str | None:
    if fact.architecture in ARCHITECTURES:
        return None
    return f"is {fact.architecture}, and Ray is made for {' and '.join(ARCHITECTURES)}"


def _kernel(fact: Facts) -> str | None:
    found = re.match(r"(\d+)\.(\d+)", fact.kernel)
    if found is None or (int(found[1]), int(found[2])) >= KERNEL:
        return None
    return f"its kernel is {fact.kernel}, and Kubernetes needs {KERNEL[0]}.{KERNEL[1]} or newer"


def _hostname(fact: Facts, address: str) -> str | None:
    # The lower-case host name becomes the node's name, and is written into /etc/hosts of every
    # host. It must be neither an IP address nor another machine's name in DNS.
    label = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
    name = fact.hostname.lower()
    if re.fullmatch(rf"{label}(?:\.{label})+", name) and not re.fullmatch(r"[0-9.]+", name):
        if name == address.lower():
            return None
        return (
            f"its host name {name} may be another machine's in DNS: use this name for the host in "
            "the file, or rename the host"
        )
    if re.fullmatch(label, name) and name != "localhost" and not name.isdigit():
        return None
    return (
        f"its host name {fact.hostname} is no valid node name: sudo hostnamectl set-hostname NAME"
    )


def _address(fact: Facts, ip: str) -> str | None:
    if ip in fact.addresses:
        return None
    has = named(sorted(address for address, name in fact.addresses.items() if name != "lo"))
    problem = f"{ip} is no address of its interfaces" if ip else "its name does not resolve here"
    return f"{problem} ({has}): set `ip:` to the address by which other hosts reach it"


def _driver(fact: Facts) -> str | None:
    if fact.gpus or not fact.displays:
        return None
    return (
        f"has {counted(fact.displays, 'NVIDIA GPU')} and no driver: sudo ubuntu-drivers "
        "install --gpgpu"
    )


def _route(fact: Facts) -> str | None:
    if re.search("^default ", fact.routes, re.MULTILINE):
        return None
    return "has no default route"


def _ports(fact: Facts, ports: Mapping[int, str]) -> str | None:
    taken = [f"{port} ({what})" for port, what in ports.items() if port in fact.listening]
    if taken:
        return f"something else listens on {named(taken)}"
    return None
