"""A host by SSH: commands, sudo and files; a broken connection reopens."""

from __future__ import annotations

import atexit
import shlex
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

from paramiko import Channel, ProxyCommand, SSHClient, Transport
from paramiko.ssh_exception import ChannelException, SSHException
from trainyard_runner.wire.text import last_line

from trainyard.errors import NotReadyError
from trainyard.seams.addresses import keep_alive
from trainyard.seams.programs import Ran
from trainyard.seams.ssh import config, login
from trainyard.seams.ssh.config import Identity
from trainyard.seams.ssh.login import BrokenError, HostError

SUDO_PASSWORD = "TRAINYARD_SUDO_PASSWORD"  # noqa: S105 (the variable's name)
# A local shell feeds sudo the password from its environment, then its own input. Every user of the
# machine could see a password in a command line.
FEED_SUDO = '{ printf "%s\\n" "$TRAINYARD_SUDO_PASSWORD"; [ -t 0 ] || cat; } | "$@"'
CONNECT_SECONDS = 10.0
# A host hangs if it accepted the login and then does not answer within this time.
ANSWER_SECONDS = 30.0
# Bytes of a command's output that are kept: the last ones.
OUTPUT_LIMIT = 1024 * 1024
PART = 64 * 1024
# The most additional connections to one host, for many commands at once.
SPARES = 8
PUT_SECONDS = 600.0
# The lowest transfer rate that does not count as broken, in bytes per second.
SLOWEST = 250_000
# The limit for the first line of a held command, which comes at once unless the host is busy.
HOLD_SECONDS = 60.0
# A file appears whole or not at all, even if the connection breaks.
PUT = """umask 077
cat > "$1" && [ "$(wc -c < "$1")" -eq "$2" ] && chmod 644 "$1" && mv -f "$1" "$3" && exit
rm -f "$1"
exit 1"""

_connections: dict[tuple[str, str, Identity | None], Connection] = {}
_lock = threading.Lock()


def connect(
    address: str, environ: Mapping[str, str], identity: Identity | None = None
) -> Connection:
    """Return the one connection to [ssh://][user@]host[:port]; send nothing."""
    key = (address, environ.get("HOME", ""), identity)
    with _lock:
        if key not in _connections:
            _connections[key] = Connection(address, environ, identity=identity)
            atexit.register(_connections[key].close)
        return _connections[key]


@dataclass(frozen=True)
class Held:
    """A command that ends with this object, and its first `line` of output."""

    line: str
    channel: Channel

    @property
    def runs(self) -> bool:
        return not (self.channel.closed or self.channel.exit_status_ready())


class Connection:
    """A host; threads may share it.

    All methods raise HostError if the host cannot be reached or rejects the
    login, BrokenError if the connection broke. `via` is the host from which
    this host is reached; without `via`, the SSH configuration may name jump
    hosts. `identity` is a key that Trainyard made.
    """

    def __init__(
        self,
        address: str,
        environ: Mapping[str, str],
        via: Connection | None = None,
        *,
        spares: int = SPARES,
        identity: Identity | None = None,
    ) -> None:
        self.address = config.parse(address)
        self.environ = environ
        self._given = address
        self._via = via
        self._lock = threading.Lock()
        self._client: SSHClient | None = None
        self._sudo: tuple[list[str], bytes] | None = None
        self._spare: Connection | None = None
        self._spares = spares
        self._identity = identity

    def transport(self) -> Transport:
        """Return the open connection; connect if there is none."""
        with self._lock:
            transport = None
            if self._client:
                transport = self._client.get_transport()
            if transport and transport.is_active():
                return transport
            self._client = self._connect(
                config.settings(self.address, self.environ, self._identity)
            )
            return cast(Transport, self._client.get_transport())

    def session(self) -> Channel:
        """Open a channel for one command."""
        try:
            return self._open("session", None)
        except ChannelException as error:
            if not self._spares:
                raise BrokenError(
                    f"{self.address.host} opens no session", where=f"ssh {self.address}"
                ) from error
            # sshd opens ten sessions for each connection (sshd_config(5), MaxSessions).
            with self._lock:
                self._spare = self._spare or Connection(
                    self._given,
                    self.environ,
                    self._via,
                    spares=self._spares - 1,
                    identity=self._identity,
                )
            return self._spare.session()

    def reach(self, host: str, port: int) -> Channel:
        """Connect this host to a port of any host. Raises ChannelException."""
        return self._open("direct-tcpip", (host, port))

    def run(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        then: Path | None = None,
        seconds: float = 60.0,
    ) -> Ran:
        """Run a command to its end.

        Its input is `stdin`, then the content of the file `then`. Raises
        NotReadyError if the command still runs after `seconds`; it is not
        ended.
        """
        channel = self.session()
        with ThreadPoolExecutor(4) as pool:
            try:
                channel.exec_command(shlex.join(command))
                pool.submit(_feed, channel, stdin, then)
                stdout = pool.submit(_tail, channel.recv)
                stderr = pool.submit(_tail, channel.recv_stderr)
                code = pool.submit(channel.recv_exit_status)
                parts: tuple[Future[Any], ...] = (stdout, stderr, code)
                late = wait(parts, timeout=seconds).not_done
            except SSHException as error:
                raise self._broke(error) from error
            finally:
                channel.close()

        if late:
            raise NotReadyError(
                f"{_name(command)} did not end within {seconds:.0f} s", where=f"ssh {self.address}"
            )
        if code.result() < 0 and not channel.get_transport().is_active():
            raise self._broke(SSHException(f"{_name(command)} may still run there"))

        return Ran(code.result(), stdout.result(), stderr.result())

    def sudo(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        then: Path | None = None,
        seconds: float = 60.0,
    ) -> Ran:
        """Run a command as root, if needed with $TRAINYARD_SUDO_PASSWORD."""
        words, password = self._sudo_words()
        return self.run(
            [*words, "--", *command], stdin=password + stdin, then=then, seconds=seconds
        )

    def hold(self, command: Sequence[str]) -> Held:
        """Start a command as root that prints a line and ends with its input.

        The input ends with the returned `Held`, or with this process. Raises
        NotReadyError if the line does not come within HOLD_SECONDS.
        """
        words, password = self._sudo_words()
        channel = self.session()
        channel.settimeout(HOLD_SECONDS)

        try:
            channel.exec_command(shlex.join([*words, "--", *command]))
            channel.sendall(password)
            return Held(str(channel.makefile().readline()).strip(), channel)
        except TimeoutError as error:
            raise NotReadyError(
                f"{command[0]} printed nothing within {HOLD_SECONDS:.0f} s",
                where=f"ssh {self.address}",
            ) from error
        except (SSHException, OSError) as error:
            raise self._broke(error) from error

    def root_shell(self, command: Sequence[str], *, terminal: bool) -> list[str]:
        """Return a local command that runs `command` on the host as root.

        The command on the host reads the local stdin. On a terminal, sudo
        prompts for its password. Without one, this call asks the host whether
        sudo needs a password, which the command then reads from
        $TRAINYARD_SUDO_PASSWORD.
        """
        words = ["sudo"]
        password = b""
        if not terminal:
            words, password = self._sudo_words()
        ssh = self.address.shell(shlex.join([*words, "--", *command]), terminal=terminal)
        if password:
            return ["sh", "-c", FEED_SUDO, "sh", *ssh]
        return ssh

    def put(self, path: str, content: bytes | Path) -> None:
        """Write a file as root, whole or not at all; create no directory."""
        if isinstance(content, Path):
            stdin = b""
            then = content
            size = content.stat().st_size
        else:
            stdin = content
            then = None
            size = len(content)

        words = ["sh", "-c", PUT, "sh", f"{path}.{token_hex(4)}", str(size), path]
        ran = self.sudo(words, stdin=stdin, then=then, seconds=PUT_SECONDS + size / SLOWEST)
        if ran.code != 0:
            reason = last_line(ran.stderr) or "the file arrived only in part"
            raise HostError(f"{path} cannot be written on {self.address.host}", where=reason)

    def close(self) -> None:
        for client in (self._client, self._spare):
            if client:
                client.close()

    def _connect(self, settings: config.Settings) -> SSHClient:
        try:
            return login.client(self._socket(settings), settings)
        except (SSHException, OSError, EOFError) as error:
            raise login.unreachable(error, self.address, settings) from error

    def _socket(self, settings: config.Settings) -> socket.socket | Channel | ProxyCommand:
        """Connect directly, through jump hosts, or by ProxyCommand."""
        via = self._via
        if via is None and settings.proxy_command:
            return ProxyCommand(settings.proxy_command)

        if via is None:
            for jump in settings.jumps:
                if via:
                    via = Connection(jump, self.environ, via)
                else:
                    via = connect(jump, self.environ)

        if via:
            return via.reach(settings.host, settings.port)

        plain = socket.create_connection((settings.host, settings.port), timeout=CONNECT_SECONDS)
        keep_alive(plain)
        return plain

    def _open(self, kind: str, target: tuple[str, int] | None) -> Channel:
        for _ in range(2):
            transport = self.transport()
            try:
                return transport.open_channel(
                    kind, target, ("127.0.0.1", 0), timeout=CONNECT_SECONDS
                )
            except (SSHException, EOFError, OSError) as error:
                if transport.is_active():
                    if isinstance(error, ChannelException):
                        raise
                    # If the host rejects several channels at once, paramiko gives the reason to
                    # only one caller; the others get another error.
                    raise ChannelException(0, str(error)) from error
                broken = error
            # The connection has broken since its last use: connect again, once.
        raise self._broke(broken)

    def _sudo_words(self) -> tuple[list[str], bytes]:
        """Return the sudo command and its password input; ask the host once."""
        self._sudo = self._sudo or self._ask_sudo()
        return self._sudo

    def _ask_sudo(self) -> tuple[list[str], bytes]:
        # With -k, sudo ignores a remembered password, which may expire between two commands.
        free = self.run(["sudo", "-n", "-k", "true"], seconds=ANSWER_SECONDS)
        password = self.environ.get(SUDO_PASSWORD)
        if free.code == 0:
            return ["sudo", "-n"], b""

        words = ["sudo", "-k", "-S", "-p", ""]
        line = f"{password}\n".encode()
        if password:
            tried = self.run([*words, "true"], stdin=line)
        else:
            tried = free

        if tried.code == 0:
            return words, line

        user = config.settings(self.address, self.environ, self._identity).user
        reason = last_line(tried.stderr) or "sudo printed nothing"
        raise HostError(
            f"sudo on {self.address.host} fails",
            where=f"ssh {self.address}: {reason}",
            hint=f"Set {SUDO_PASSWORD} to the password of user {user} there, or allow it sudo "
            "without one (NOPASSWD in sudoers). "
            f"To try the password: ssh -t {self.address} sudo -k true",
        )

    def _broke(self, error: Exception) -> BrokenError:
        return BrokenError(
            f"the connection to {self.address.host} broke",
            where=f"ssh {self.address}: {error}",
            hint="Repeat the command: it continues.",
        )


def _name(command: Sequence[str]) -> str:
    """Return a command's program, of `sudo ... -- PROGRAM`, too."""
    if command[0] == "sudo" and "--" in command:
        return command[command.index("--") + 1]
    return command[0]


def _feed(channel: Channel, content: bytes, then: Path | None) -> None:
    """Send the input; a command may end before it has read all of it."""
    try:
        channel.sendall(content)
        if then is not None:
            with then.open("rb") as file:
                while part := file.read(PART):
                    channel.sendall(part)
        channel.shutdown_write()
    except OSError:
        return


def _tail(receive: Callable[[int], bytes]) -> str:
    kept = b""
    while part := receive(PART):
        kept = (kept + part)[-OUTPUT_LIMIT:]
    return kept.decode(errors="replace")
