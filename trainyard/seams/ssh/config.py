"""What OpenSSH's own configuration says about a host: address, keys, jump hosts, and how its key is
checked.
"""

from __future__ import annotations

import getpass
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from paramiko import SSHConfig
from paramiko.ssh_exception import ConfigParseError, CouldNotCanonicalize

from trainyard.errors import PrerequisiteError, RequestError

SSH_PORT = 22
SYSTEM = Path("/etc/ssh")
# The keys that OpenSSH tries unasked (ssh_config(5), IdentityFile).
DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
_BLOCK = re.compile(r"^(?=[^\S\n]*(?:host|match)[\s=])", re.IGNORECASE | re.MULTILINE)
_PATTERN = re.compile('[*?!"]')
_INCLUDE = re.compile(r"^\s*include(?:\s+|\s*=\s*)(.+)$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class Identity:
    """A key for hosts that we made, and the file in which their host keys are pinned: what the
    user's own are not.
    """

    key: Path
    known_hosts: Path

    def options(self) -> list[str]:
        """Return what `ssh` is called with."""
        options = [
            "IdentitiesOnly=yes",
            f"UserKnownHostsFile={self.known_hosts}",
            "StrictHostKeyChecking=accept-new",
        ]
        return ["-i", str(self.key), *(word for option in options for word in ("-o", option))]


@dataclass(frozen=True)
class Address:
    """A host as a person names it; an alias of ~/.ssh/config will do. What is None is left to the
    configuration.
    """

    host: str
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        login = f"{self.user}@{self.host}" if self.user else self.host
        if self.port:
            return f"-p {self.port} {login}"
        return login

    def shell(self, command: str, *, terminal: bool, identity: Identity | None = None) -> list[str]:
        """Return what `ssh` is called with for a shell there, or for a command line that the user's
        shell there reads.

        It reads the same configuration, keys and known hosts as we do.
        """
        options = [*(["-t"] if terminal else []), *(identity.options() if identity else [])]
        return ["ssh", *options, *str(self).split(), *(["--", command] if command else [])]


@dataclass(frozen=True)
class Settings:
    """How to reach one host.

    `agent` is the socket of one that holds keys; with `only_named` they come after
    `keys`. `pin`: an unknown host key is written to the first of `known_hosts`, not refused.
    """

    host: str
    port: int
    user: str
    keys: tuple[Path, ...]
    agent: str
    only_named: bool
    jumps: tuple[str, ...]
    proxy_command: str | None
    known_hosts: tuple[Path, ...]
    pin: bool

    @property
    def known_as(self) -> str:
        """Return the host's name in known_hosts files (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT)."""
        if self.port == SSH_PORT:
            return self.host
        return f"[{self.host}]:{self.port}"


def parse(address: str) -> Address:
    """Read ssh://[user@]host[:port], or the same without ssh://."""
    parts = urlsplit(address if "://" in address else f"ssh://{address}")
    try:
        port = parts.port
    except ValueError:
        port = 0

    if (
        parts.scheme != "ssh"
        or not parts.hostname
        or parts.hostname.startswith("-")
        or parts.path
        or port == 0
    ):
        raise RequestError(
            f"{address!r} is not the address of a host", hint="Write [user@]host[:port]."
        )

    # urlsplit gives hosts in small letters; aliases are told apart by them.
    host = re.sub(r":\d+$", "", parts.netloc.rpartition("@")[2]).strip("[]")
    return Address(host, parts.username, port)


def settings(
    address: Address, environ: Mapping[str, str], identity: Identity | None = None
) -> Settings:
    """Return what ~/.ssh/config and /etc/ssh/ssh_config say about a host. Raises PrerequisiteError
    if one is broken.

    With an `identity`, no other key is offered, and the host's key is pinned beside no other.
    """
    home = Path(environ.get("HOME") or Path.home())
    options = _lookup(address, home)
    keys = [Path(file).expanduser() for file in options.get("identityfile", ())]
    known = shlex.split(options.get("userknownhostsfile", "")) or [
        str(home / ".ssh" / "known_hosts")
    ]
    known += shlex.split(options.get("globalknownhostsfile", "")) or [
        str(SYSTEM / "ssh_known_hosts")
    ]
    jumps, command = (options.get(name, "none") for name in ("proxyjump", "proxycommand"))
    agent = options.get("identityagent", "SSH_AUTH_SOCK")
    if agent in ("SSH_AUTH_SOCK", "$SSH_AUTH_SOCK"):
        agent = environ.get("SSH_AUTH_SOCK", "")
    else:
        agent = agent

    found = Settings(
        host=str(options["hostname"]),
        port=address.port or int(options.get("port", SSH_PORT)),
        user=address.user or options.get("user") or getpass.getuser(),
        keys=tuple(keys or [home / ".ssh" / name for name in DEFAULT_KEYS]),
        agent="" if agent == "none" else agent.replace("~", str(home), 1),
        only_named=options.get("identitiesonly", "no") == "yes",
        jumps=() if jumps == "none" else tuple(jump.strip() for jump in jumps.split(",")),
        proxy_command=None if command == "none" else command,
        known_hosts=tuple(Path(file.replace("~", str(home), 1)) for file in known),
        pin=options.get("stricthostkeychecking", "ask") in ("accept-new", "no", "off"),
    )

    if identity is None:
        return found

    return replace(
        found, keys=(identity.key,), agent="", known_hosts=(identity.known_hosts,), pin=True
    )


def _lookup(address: Address, home: Path) -> dict[str, Any]:
    files = (home / ".ssh" / "config", SYSTEM / "ssh_config")
    # What was typed counts before any file; the first that says something does.
    typed = []
    for key, value in (("User", address.user), ("Port", address.port)):
        if value:
            typed.append(f"{key} {value}\n")

    written = "".join(f"Host *\n{_read(file, home)}\n" for file in files)
    text = "Host *\n" + "".join(typed) + "".join(_blocks_about(address.host, written))
    try:
        return dict(SSHConfig.from_text(text).lookup(address.host))
    except (ConfigParseError, CouldNotCanonicalize) as error:
        where = " or ".join(map(str, files))
        raise PrerequisiteError(
            f"ssh's configuration cannot be read: {error}", where=where
        ) from error


def _blocks_about(host: str, written: str) -> Iterator[str]:
    """Yield the blocks that may be about a host: paramiko tries the patterns of all, 20 ms in a
    file of 1,000 hosts.
    """
    for first, block in _blocks(written):
        if first[0].lower() != "host" or _PATTERN.search(" ".join(first)) or host in first:
            yield block


@lru_cache(maxsize=4)
def _blocks(written: str) -> list[tuple[list[str], str]]:
    """Return each block of a configuration, behind the words of its first line."""
    blocks = _BLOCK.split(written)[1:]
    return [(block.strip().partition("\n")[0].replace("=", " ").split(), block) for block in blocks]


def _read(file: Path, home: Path) -> str:
    """Return a configuration with what it includes: paramiko knows no Include."""
    if not file.is_file():
        return ""

    base = home / ".ssh" if file.is_relative_to(home) else SYSTEM

    def included(line: re.Match[str]) -> str:
        patterns = [
            str(base / pattern.replace("~", str(home), 1)) for pattern in shlex.split(line[1])
        ]
        files = [
            path for pattern in patterns for path in sorted(Path("/").glob(pattern.lstrip("/")))
        ]
        return "\n".join(_read(path, home) for path in files)

    return _INCLUDE.sub(included, file.read_text(errors="replace"))
