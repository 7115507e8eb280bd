"""The login to a host by a socket: check its key, offer the user's keys."""

from __future__ import annotations

import hmac
import itertools
import logging
import re
import socket
from base64 import b64decode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, cast

from paramiko import Channel, PKey, ProxyCommand, SSHClient, SSHConfig
from paramiko.agent import AgentSSH
from paramiko.auth_strategy import AuthSource, AuthStrategy, InMemoryPrivateKey
from paramiko.client import MissingHostKeyPolicy
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey
from paramiko.pkey import UnknownKeyType
from paramiko.ssh_exception import AuthenticationException, BadHostKeyException, SSHException

from trainyard.diagnosis import Diagnosis, Rule, explain
from trainyard.errors import OutsideError, PrerequisiteError, TrainyardError
from trainyard.seams.ssh.config import Address, Settings

LOGIN_SECONDS = 20.0
_HASHED = re.compile(r"\|1\|([A-Za-z0-9+/]{27}=)\|([A-Za-z0-9+/]{27}=)\s")
# Patterns are searched in "EXCEPTION: its text" of paramiko or the system. {host} is the argument
# for `ssh` on a command line, {known} the host's name in known_hosts.
REACH = (
    Rule(
        "gaierror",
        "the name {name} cannot be looked up",
        "Is it spelled right? DNS, /etc/hosts or ~/.ssh/config must know it: ssh {host} true",
    ),
    Rule(
        "BadHostKeyException",
        "the host key of {name} has changed",
        "Another machine may be answering. If you know that the change is right: ssh-keygen -R "
        "'{known}'",
    ),
    Rule(
        "not found in known_hosts",
        "the host key of {name} is not known here",
        "Check the key and accept it once: ssh {host}",
    ),
    Rule(
        "PasswordRequiredError: (?P<file>.*)",
        "the key to log in to {name} has a passphrase, and no agent holds it",
        "Add the key to the agent: ssh-add {file}",
    ),
    Rule(
        "Authentication|BadAuthenticationType|AuthFailure",
        "{name} refuses every key of user {user}",
        "Install your key there: ssh-copy-id {host}",
    ),
    Rule(
        "",
        "{name} cannot be reached by SSH on port {port}",
        "Is the name right, is the machine on, and does sshd run there? This must work without a "
        "prompt: ssh {host} true",
    ),
)


class HostError(PrerequisiteError):
    """A host cannot be reached, rejects the login, or does not allow root."""


class BrokenError(OutsideError):
    """The connection to a host broke."""


class PasswordRequiredError(AuthenticationException):
    """No key was accepted, and a key with a passphrase could not be tried."""


def client(plain: socket.socket | Channel | ProxyCommand, settings: Settings) -> SSHClient:
    """Return a client that is logged in. Raises SSHException, OSError."""
    # paramiko raises each failure, and also logs it with its traceback.
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)
    ssh = SSHClient()
    for file in settings.known_hosts:
        if file.is_file():
            _remember(ssh, settings.known_as, file.read_text(errors="replace"))
    ssh.set_missing_host_key_policy(_Policy(settings))

    try:
        ssh.connect(
            settings.host,
            settings.port,
            username=settings.user,
            sock=plain,
            banner_timeout=LOGIN_SECONDS,
            auth_timeout=LOGIN_SECONDS,
            auth_strategy=_Keys(settings),
        )
    except BaseException:
        ssh.close()
        plain.close()
        raise
    return ssh


def unreachable(error: Exception, address: Address, settings: Settings) -> TrainyardError:
    """Return the error for a failed login, with its cause and a hint."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, BadHostKeyException):
        current = f"{error.key.get_name()} {error.key.fingerprint}"
        known = f"{error.expected_key.get_name()} {error.expected_key.fingerprint}"
        text = f"{type(error).__name__}: it is {current}, and {known} is known"
    words = {"user": settings.user, "port": str(settings.port), "known": settings.known_as}
    # The last rule matches every text.
    cause = cast(Diagnosis, explain(text, REACH, name=address.host, host=str(address), **words))
    return HostError(
        cause.message, where=f"ssh {address}: {cause.raw.partition(': ')[2]}", hint=cause.hint
    )


def known_lines(host: str, text: str) -> Iterator[str]:
    """Yield the lines of a known_hosts file about a host.

    ssh may hash names, with a salt for each line (sshd(8), SSH_KNOWN_HOSTS FILE
    FORMAT).
    """
    for line in text.splitlines():
        hashed = _HASHED.match(line)
        if hashed is None:
            is_about = host in line and host in line.split(None, 1)[0].split(",")
        else:
            salt = b64decode(hashed[1])
            digest = b64decode(hashed[2])
            is_about = hmac.digest(salt, host.encode(), "sha1") == digest
        if is_about:
            yield line


def _remember(client: SSHClient, host: str, known: str) -> None:
    """Add a host's known keys, without paramiko's comparison of all lines."""
    for line in known_lines(host, known):
        with suppress(SSHException, InvalidHostKey):
            entry = HostKeyEntry.from_line(line.strip())
            if entry and entry.key:
                client.get_host_keys().add(host, entry.key.get_name(), entry.key)


class _Policy(MissingHostKeyPolicy):
    """Stores or rejects an unknown host key, as StrictHostKeyChecking says."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def missing_host_key(self, client: SSHClient, hostname: str, key: PKey) -> None:
        if not self._settings.pin:
            raise SSHException(f"not found in known_hosts: {key.get_name()} {key.fingerprint}")
        file = self._settings.known_hosts[0]
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with file.open("a") as known:
            known.write(f"{hostname} {key.get_name()} {key.get_base64()}\n")


class _Keys(AuthStrategy):
    """Offers keys of the agent and of files, until the host accepts one."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(SSHConfig())
        self._settings = settings
        self._locked: list[str] = []

    def get_sources(self) -> Iterator[AuthSource]:
        agent_keys: Iterable[PKey] = ()
        if self._settings.agent:
            agent_keys = _Agent(self._settings.agent).get_keys()

        # With IdentitiesOnly, the agent's keys come last: sshd ends a login after six keys.
        if self._settings.named_first:
            keys = itertools.chain(self._files(), agent_keys)
        else:
            keys = itertools.chain(agent_keys, self._files())
        for key in keys:
            yield InMemoryPrivateKey(self._settings.user, key)

    def authenticate(self, transport: Any) -> Any:
        try:
            return super().authenticate(transport)
        except AuthenticationException as error:
            if self._locked:
                raise PasswordRequiredError(self._locked[0]) from error
            raise AuthenticationException("no key was accepted") from error

    def _files(self) -> Iterator[PKey]:
        for file in self._settings.keys:
            if not file.is_file() or file.suffix == ".pub":
                continue
            try:
                yield PKey.from_path(file)
            except TypeError:  # cryptography raises it if the key needs a passphrase
                self._locked.append(str(file))
            except (OSError, ValueError, SSHException, UnknownKeyType):
                continue


class _Agent(AgentSSH):
    """The agent at a socket; paramiko's own class only uses $SSH_AUTH_SOCK."""

    def __init__(self, path: str) -> None:
        super().__init__()
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
        except OSError:
            return
        self._connect(connection)  # type: ignore[attr-defined]  # not in the stubs
