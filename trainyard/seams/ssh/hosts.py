"""SSH hosts: their names, commands as root, and work on many hosts at once."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from trainyard.errors import OutsideError, TrainyardError
from trainyard.seams.programs import Ran
from trainyard.seams.ssh import config
from trainyard.seams.ssh.connection import Connection, connect
from trainyard.seams.ssh.many import AT_ONCE, gather, refuse

Result = TypeVar("Result")
# The most lines of one snapd message; more are a listing.
MOST_FOLDED = 8
_REACH = "exec 3<> /dev/tcp/$0/$1"


@dataclass(frozen=True)
class Host:
    """A host; `ssh` is [user@]host[:port], `ip` the address for other hosts."""

    name: str
    ip: str
    ssh: str
    connection: Connection

    def root(
        self, *command: str, seconds: float = 60.0, check: bool = True, stdin: bytes = b""
    ) -> Ran:
        """Run a command as root; `check` raises OutsideError for a failure."""
        ran = self.connection.sudo(list(command), seconds=seconds, stdin=stdin)
        if check and ran.code != 0:
            words = [word for word in command if len(word) < 60 and "\n" not in word]
            reason = last_words(ran.stderr.strip() or ran.stdout)
            raise OutsideError(
                f"{self.name}: {' '.join(words[:3])} failed",
                where=reason or f"exit code {ran.code}, without any output",
                hint="When the cause is gone, repeat the same command: it continues.",
            )
        return ran

    def reaches(self, ip: str, port: int) -> bool:
        return self.connection.run(["timeout", "5", "bash", "-c", _REACH, ip, str(port)]).code == 0


def last_words(printed: str) -> str:
    """Return a program's last message on one line, although snapd folds it.

    Indented lines continue the message above. Lines without a letter or digit,
    such as snapd's rule below a quotation, are skipped.
    """
    lines = [line for line in printed.splitlines() if re.search(r"\w", line)]
    first = max(len(lines) - 1, 0)
    while first > 0 and lines[first][:1].isspace():
        first -= 1

    message = lines[first:]
    if len(message) > MOST_FOLDED:
        message = lines[-1:]
    return " ".join(line.strip() for line in message)


AnyHost = TypeVar("AnyHost", bound=Host)


def of_addresses(ips: Mapping[str, str | None], environ: Mapping[str, str]) -> list[Host]:
    """Return a host for each [user@]host[:port]; look up an IP that is None.

    No host is asked yet. A host with an unknown name gets the IP "": connecting
    to it reports the name, unless a jump host knows it.
    """
    names = Counter(config.parse(address).host for address in ips)

    def host(address: str) -> Host:
        parsed = config.parse(address)
        # Hosts behind one address differ by port.
        if names[parsed.host] == 1:
            name = parsed.host
        else:
            name = f"{parsed.host}:{parsed.port}"
        return Host(name, ips[address] or _ip(address, environ), address, connect(address, environ))

    # In parallel: the lookup of an unknown name takes long.
    hosts, errors = gather(ips, host)
    refuse(errors)
    return list(hosts.values())


def each(hosts: Sequence[AnyHost], act: Callable[[AnyHost], object]) -> None:
    """Call `act` for all hosts at once; raise one error for all failures."""
    _, errors = try_each(hosts, act)
    refuse(errors)


def try_each(
    hosts: Sequence[AnyHost], act: Callable[[AnyHost], Result]
) -> tuple[dict[str, Result], dict[str, TrainyardError]]:
    """Call `act` for all hosts at once; return results and errors by name."""
    by_name = {host.name: host for host in hosts}
    kept = {host.name for host in hosts[:AT_ONCE]}

    def attempt(name: str) -> Result:
        try:
            return act(by_name[name])
        finally:
            # An open connection costs memory, and time even while it is idle.
            if name not in kept:
                by_name[name].connection.close()

    return gather(by_name, attempt)


def _ip(address: str, environ: Mapping[str, str]) -> str:
    name = config.settings(config.parse(address), environ).host
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0])
    except OSError:
        return ""
