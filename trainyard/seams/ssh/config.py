"""OpenSSH's settings for a host: address, keys, jump hosts, host key checks."""

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


_INCLUDE = re.compile(r"^\s*include(?:\s+|\s*=\s*)(.+)$", re.IGNORECASE | re.MULTILINE)
_BLOCK = re.compile(r"^(?=[^\S\n]*(?:host|match)[\s=])", re.IGNORECASE | re.MULTILINE)
_PATTERN = re.compile('[*?!"]')


@dataclass(frozen=True)
class Identity:
    """A login key for hosts that Trainyard made, and their known_hosts file."""

    key: Path
    known_hosts: Path

    def options(self) -> list[str]:
        """Return the arguments for `ssh`."""
        options = [
            "IdentitiesOnly=yes",
            f"UserKnownHostsFile={self.known_hosts}",
            "StrictHostKeyChecking=accept-new",
        ]
        words = ["-i", str(self.key)]
        for option in options:
            words += ["-o", option]
        return words


@dataclass(frozen=True)
class Address:
    """A host as the user names it, perhaps by an alias.

    Where a field is None, ~/.ssh/config decides.
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
        """Return the `ssh` command line for `command`; "" opens a shell."""
        words = ["ssh"]
        if terminal:
            words.append("-t")
        if identity:
            words += identity.options()
        words += str(self).split()
        if command:
            words += ["--", command]
        return words


@dataclass(frozen=True)
class Settings:
    """How to reach one host.

    `agent` is the socket of an agent that holds keys, "" for none. With
    `named_first`, `keys` are offered before the agent's keys. With `pin`, an
    unknown host key is not rejected, but written to the first of `known_hosts`.
    """

    host: str
    port: int
    user: str
    keys: tuple[Path, ...]
    agent: str
    named_first: bool
    jumps: tuple[str, ...]
    proxy_command: str | None
    known_hosts: tuple[Path, ...]
    pin: bool

    @property
    def known_as(self) -> str:
        """Return the host's name in known_hosts files (format: sshd(8))."""
        if self.port == SSH_PORT:
            return self.host
        return f"[{self.host}]:{self.port}"


def parse(address: str) -> Address:
    """Read [ssh://][user@]host[:port]. Raises RequestError."""
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
        message = f"{address!r} is not the address of a host"
        raise RequestError(message, hint="Write [user@]host[:port].")

    # urlsplit gives hosts in lower case, but aliases are case-sensitive.
    host = re.sub(r":\d+$", "", parts.netloc.rpartition("@")[2]).strip("[]")
    return Address(host, parts.username, port)


def settings(
    address: Address, environ: Mapping[str, str], identity: Identity | None = None
) -> Settings:
    """Return a host's settings in ~/.ssh/config and /etc/ssh/ssh_config.

    With an `identity`, no other key is offered, and the host key is pinned in
    the identity's file. Raises PrerequisiteError if a file is broken.
    """
    home = Path(environ.get("HOME") or Path.home())
    options = _lookup(address, home)
    keys = [Path(file).expanduser() for file in options.get("identityfile", ())]
    user_file = str(home / ".ssh" / "known_hosts")
    system_file = str(SYSTEM / "ssh_known_hosts")
    known = shlex.split(options.get("userknownhostsfile", "")) or [user_file]
    known += shlex.split(options.get("globalknownhostsfile", "")) or [system_file]

    jumps: tuple[str, ...] = ()
    if options.get("proxyjump", "none") != "none":
        jumps = tuple(jump.strip() for jump in options["proxyjump"].split(","))

    proxy_command = options.get("proxycommand", "none")
    if proxy_command == "none":
        proxy_command = None

    from_files = Settings(
        host=str(options["hostname"]),
        port=address.port or int(options.get("port", SSH_PORT)),
        user=address.user or options.get("user") or getpass.getuser(),
        keys=tuple(keys or [home / ".ssh" / name for name in DEFAULT_KEYS]),
        agent=_agent(options, environ, home),
        named_first=options.get("identitiesonly", "no") == "yes",
        jumps=jumps,
        proxy_command=proxy_command,
        known_hosts=tuple(Path(file.replace("~", str(home), 1)) for file in known),
        pin=options.get("stricthostkeychecking", "ask") in ("accept-new", "no", "off"),
    )
    if identity is None:
        return from_files
    return replace(
        from_files, keys=(identity.key,), agent="", known_hosts=(identity.known_hosts,), pin=True
    )


def _agent(options: Mapping[str, Any], environ: Mapping[str, str], home: Path) -> str:
    agent = str(options.get("identityagent", "SSH_AUTH_SOCK"))
    if agent in ("SSH_AUTH_SOCK", "$SSH_AUTH_SOCK"):
        agent = environ.get("SSH_AUTH_SOCK", "")
    if agent == "none":
        return ""
    return agent.replace("~", str(home), 1)


def _lookup(address: Address, home: Path) -> dict[str, Any]:
    """Return paramiko's options. Raises PrerequisiteError for broken files."""
    # The first value of an option wins.
    lines = ["Host *"]
    if address.user:
        lines.append(f"User {address.user}")
    if address.port:
        lines.append(f"Port {address.port}")

    files = (home / ".ssh" / "config", SYSTEM / "ssh_config")
    written = "".join(f"Host *\n{_read(file, home)}\n" for file in files)
    lines += _blocks_about(address.host, written)

    try:
        return dict(SSHConfig.from_text("\n".join(lines)).lookup(address.host))
    except (ConfigParseError, CouldNotCanonicalize) as error:
        where = " or ".join(map(str, files))
        raise PrerequisiteError(
            f"ssh's configuration cannot be read: {error}", where=where
        ) from error


def _blocks_about(host: str, written: str) -> Iterator[str]:
    """Yield the blocks that may be about a host.

    paramiko tries the patterns of every block: 45 ms per host in a file of
    1,000 hosts.
    """
    for first, block in _blocks(written):
        if first[0].lower() != "host" or _PATTERN.search(" ".join(first)) or host in first:
            yield block


@lru_cache(maxsize=4)
def _blocks(written: str) -> list[tuple[list[str], str]]:
    """Return the words of each block's first line, and the block."""
    blocks = []
    for block in _BLOCK.split(written)[1:]:
        first_line = block.strip().partition("\n")[0]
        blocks.append((first_line.replace("=", " ").split(), block))
    return blocks


def _read(file: Path, home: Path) -> str:
    """Read a file and its Includes, which paramiko cannot resolve."""
    if not file.is_file():
        return ""

    base = home / ".ssh" if file.is_relative_to(home) else SYSTEM

    def included(line: re.Match[str]) -> str:
        texts = []
        for name in shlex.split(line[1]):
            pattern = str(base / name.replace("~", str(home), 1))
            for path in sorted(Path("/").glob(pattern.lstrip("/"))):
                texts.append(_read(path, home))
        return "\n".join(texts)

    return _INCLUDE.sub(included, file.read_text(errors="replace"))
