"""Hosts that are reached by SSH: their names, commands as root there, and work on many at once."""

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
# Lines of one message of snapd's; more of them are a listing.
MOST_FOLDED = 8
_REACH = "exec 3<> /dev/tcp/$0/$1"


@dataclass(frozen=True)
class Host:
    """A host. `ssh` is its name in the cluster file, `ip` its address for other hosts."""

    name: str
    ip: str
    ssh: str
    connection: Connection

    def root(
        self, *command: str, seconds: float = 60.0, check: bool = True, stdin: bytes = b""
    ) -> Ran:
        """Run a command as root. Raises OutsideError with its last words if it fails."""
        ran = self.connection.sudo(list(command), seconds=seconds, stdin=stdin)
        if check and ran.code != 0:
            words = [word for word in command if len(word) < 60 and "\n" not in word]
            reason = last_words(ran.stderr.strip() or ran.stdout)
            raise OutsideError(
                f"{self.name}: {' '.join(words[:3])} failed",
                where=reason or f"exit code {ran.code}, and no word",
                hint="When that is mended, or has ended, repeat the same command: it continues.",
            )
        return ran

    def reaches(self, ip: str, port: int) -> bool:
        """Say whether this host can connect to a port."""
        return self.connection.run(["timeout", "5", "bash", "-c", _REACH, ip, str(port)]).code == 0


def last_words(printed: str) -> str:
    """Return the last message of a program, on one line: snapd folds its own at 79 columns.

    Folded lines are indented; below a quotation snapd draws a line.
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
    """Return hosts by [user@]host[:port], each with the given IP address or its own.

    Nothing is asked of them yet. One whose name is not known here has "": connecting to it reports
    that, unless a jump host knows the name.
    """
    names = Counter(config.parse(address).host for address in ips)

    def host(address: str) -> Host:
        parsed = config.parse(address)
        # Behind one address hosts differ by the port.
        if names[parsed.host] == 1:
            name = parsed.host
        else:
            name = f"{parsed.host}:{parsed.port}"
        return Host(name, ips[address] or _ip(address, environ), address, connect(address, environ))

    # Side by side: each unknown name takes its time to be looked up.
    hosts, errors = gather(ips, host)
    refuse(errors)
    return list(hosts.values())


def each(hosts: Sequence[AnyHost], act: Callable[[AnyHost], Result]) -> dict[str, Result]:
    """Do it with every host at once; return the results by host.

    Raises the host's error if one fails, and one with all of them if several do; the work on the
    other hosts is done.
    """
    results, errors = try_each(hosts, act)
    refuse(errors)
    return results


def try_each(
    hosts: Sequence[AnyHost], act: Callable[[AnyHost], Result]
) -> tuple[dict[str, Result], dict[str, TrainyardError]]:
    """Do it with every host at once; return the results and the errors, by host."""
    by_name = {host.name: host for host in hosts}
    kept = {host.name for host in hosts[:AT_ONCE]}

    def attempt(name: str) -> Result:
        try:
            return act(by_name[name])
        finally:
            # An open connection costs memory, and time also while it is idle.
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
