"""A host's facts, read as root by one script in one round trip."""

from __future__ import annotations

import base64
import ipaddress
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from trainyard_runner.wire.text import last_line

from trainyard.seams.ssh.connection import Connection
from trainyard.seams.ssh.login import HostError

# The script prints lines NAME VALUE; a value of several lines is in base64. Fields that a host
# lacks are left out. sudo keeps LANG: without LC_ALL=C, programs would translate text that is
# parsed here, such as the notes in snapd's list.
SCRIPT = r"""
export LC_ALL=C
field() { printf '%s %s\n' "$1" "$2"; }
text() { printf '%s %s\n' "$1" "$(base64 -w0)"; }
field clock "$(date +%s.%N)"
field hostname "$(hostname)"
field architecture "$(uname -m)"
field kernel "$(uname -r)"
field machine_id "$(cat /etc/machine-id 2> /dev/null)"
field memory "$(awk '/^MemTotal:/ {print $2 * 1024}' /proc/meminfo)"
ip -4 -o address show | text addresses
ip -4 route show | text routes
{ ss -Hlnt; ss -Hlnu; } | text listening
field forward "$(iptables -S FORWARD 2> /dev/null | sed -n 's/^-P FORWARD //p')"
field gpus "$(ls /proc/driver/nvidia/gpus 2> /dev/null | wc -l)"
nvidia=$(grep -ls 0x10de /sys/bus/pci/devices/*/vendor | sed 's/vendor$/class/')
field displays "$(cat /dev/null $nvidia | grep -c ^0x03)"
command -v docker > /dev/null && field docker yes
cat /etc/hosts | text hosts
"""
Fields = Mapping[str, str]
Fact = TypeVar("Fact")
LONGEST_SHOWN = 60


@dataclass(frozen=True)
class Facts:
    """A host at one moment. `memory` is in bytes.

    `skew` is how many seconds the host's clock is ahead of this machine's.
    `addresses` maps IPv4 addresses to interfaces; `listening` has ports. `gpus`
    counts the NVIDIA GPUs that the driver knows, `displays` all NVIDIA display
    devices on the PCI bus.
    """

    hostname: str
    architecture: str
    kernel: str
    machine_id: str
    memory: int
    skew: float
    addresses: Mapping[str, str]
    routes: str
    listening: frozenset[int]
    forward: str
    gpus: int
    displays: int
    has_docker: bool
    hosts_file: str


def read(
    connection: Connection, script: str, more: Callable[[Fields, Facts], Fact], *, now: float
) -> Fact:
    """Ask a host for facts and `script`'s fields; return `more(fields, facts)`.

    `now` is this machine's clock, in seconds. Raises HostError if the host
    cannot be asked, or if a fact cannot be read.
    """
    began = time.monotonic()
    ran = connection.sudo(["sh", "-c", SCRIPT + script])
    if ran.code != 0:
        raise HostError(
            f"the facts of {connection.address.host} cannot be read",
            where=last_line(ran.stderr) or f"exit code {ran.code}",
        )

    fields = fields_of(ran.stdout)
    seconds = time.monotonic() - began
    try:
        return more(fields, parse(fields, now=now, seconds=seconds))
    except ValueError as error:
        raise HostError(
            f"{connection.address.host} sent an unexpected answer: {error}",
            hint="Repeat the same command: it reads the facts again. If the error stays, check that "
            "host.",
        ) from error


def fields_of(printed: str) -> Fields:
    lines = [line.partition(" ") for line in printed.splitlines()]
    return {name: value.strip() for name, _, value in lines}


def fact(fields: Fields, name: str, read: Callable[[str], Fact]) -> Fact:
    """Return `read(text)` of a field; the text is "" if the host left it out.

    Raises ValueError, with the field's name and text, for any error of `read`.
    """
    text = fields.get(name, "")
    try:
        return read(text)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        if len(text) > LONGEST_SHOWN:
            text = f"{text[:LONGEST_SHOWN]}..."
        raise ValueError(f"its {name} cannot be read: {text!r}") from error


def parse(fields: Fields, *, now: float, seconds: float = 0.0) -> Facts:
    """Return the facts in a host's fields.

    The host was asked at `now`, and its fields arrived `seconds` later. A
    missing field is "". Raises ValueError for a field that cannot be read, such
    as a missing clock.
    """
    ahead = fact(fields, "clock", float) - now
    interfaces = re.findall(r"(?m)^\d+: (\S+)\s+inet ([\d.]+)", block(fields, "addresses"))
    return Facts(
        hostname=fields.get("hostname", ""),
        architecture=fields.get("architecture", ""),
        kernel=fields.get("kernel", ""),
        machine_id=fields.get("machine_id", ""),
        memory=fact(fields, "memory", lambda text: int(float(text))),
        # The host read its clock up to `seconds` after `now`: a lead up to that counts as none.
        skew=max(ahead - seconds, min(ahead, 0.0)),
        addresses={ip: name for name, ip in interfaces},
        routes=fact(fields, "routes", _routes),
        listening=fact(fields, "listening", _ports),
        forward=fields.get("forward", ""),
        gpus=fact(fields, "gpus", lambda text: int(text or 0)),
        displays=fact(fields, "displays", lambda text: int(text or 0)),
        has_docker="docker" in fields,
        hosts_file=block(fields, "hosts"),
    )


def block(fields: Fields, name: str) -> str:
    """Return a field of several lines, "" if left out. Raises ValueError."""
    return fact(fields, name, decoded)


def decoded(text: str) -> str:
    return base64.b64decode(text).decode(errors="replace")


def _routes(text: str) -> str:
    routes = decoded(text)
    for line in routes.splitlines():
        target = line.partition(" ")[0]
        if "/" in target:
            ipaddress.ip_network(target, strict=False)
    return routes


def _ports(text: str) -> frozenset[int]:
    return frozenset(int(port) for port in re.findall(r"\S+:(\d+)\s+\S+:\*", decoded(text)))


def under(fields: Fields, prefix: str) -> dict[str, str]:
    """Return the fields whose names begin with `prefix`, without the prefix."""
    found = {}
    for name, value in fields.items():
        if name.startswith(prefix):
            found[name.removeprefix(prefix)] = value
    return found
