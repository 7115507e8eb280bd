"""Ports and sockets of this machine that end at another host, for as long as this process lives.

Each connection here becomes a channel of its own; the connection that carries them is made again when it breaks, which
costs the channels that were open, and no other.
"""

from __future__ import annotations

import atexit
import shlex
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from paramiko import Channel
from paramiko.ssh_exception import SSHException

from trainyard.errors import TrainyardError
from trainyard.seams.ssh.connection import PART, Connection

LOOPBACK = "127.0.0.1"
WAITING = 128

_forwards: dict[tuple[Connection, str], Forward] = {}
_lock = threading.Lock()


def local_port(connection: Connection, port: int, *, host: str = LOOPBACK) -> int:
    """Return a port here that ends at a port of the host, or of one that it reaches. Raises HostError."""

    def listen() -> Forward:
        return Forward(socket.create_server((LOOPBACK, 0), backlog=WAITING), lambda: connection.reach(host, port))

    return int(_forward(connection, f"{host}:{port}", listen).address[1])


def local_socket(connection: Connection, command: Sequence[str]) -> Path:
    """Return a socket here; each connection to it is the input and output of a command there. Raises HostError."""

    def start() -> Channel:
        channel = connection.session()
        channel.exec_command(shlex.join(command))
        return channel

    def listen() -> Forward:
        directory = Path(tempfile.mkdtemp(prefix="trainyard-ssh-"))
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(directory / "socket"))
        listener.listen(WAITING)
        return Forward(listener, start)

    return Path(_forward(connection, shlex.join(command), listen).address)


def last_error(connection: Connection) -> str:
    """Return why the newest connection through a forward of this host came to nothing; "" if it did not."""
    with _lock:
        return next((one.last_error for key, one in _forwards.items() if key[0] is connection and one.last_error), "")


def _forward(connection: Connection, key: str, listen: Callable[[], Forward]) -> Forward:
    connection.transport()
    with _lock:
        if (connection, key) not in _forwards:
            _forwards[connection, key] = listen()
        return _forwards[connection, key]


class Forward:
    """One listener here, and the thread that accepts connections to it."""

    def __init__(self, listener: socket.socket, open_channel: Callable[[], Channel]) -> None:
        self.last_error = ""
        self.address = listener.getsockname()
        self._listener = listener
        self._open = open_channel
        threading.Thread(target=self._accept, name=f"forward {self.address}", daemon=True).start()

    def _accept(self) -> None:
        while True:
            local, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(local,), daemon=True).start()

    def _serve(self, local: socket.socket) -> None:
        """Connect one local connection; one that leads nowhere is closed at once, which clients understand soonest."""
        with local:
            try:
                channel = self._open()
            except (TrainyardError, SSHException) as error:
                self.last_error = error.what if isinstance(error, TrainyardError) else str(error)
                return
            with channel:
                sender = threading.Thread(target=_send, args=(local, channel), daemon=True)
                sender.start()
                _receive(channel, local)
                self.last_error = _last_line(channel)
                # Wakes the sender, which may wait for more.
                with suppress(OSError):
                    local.shutdown(socket.SHUT_RDWR)


def _send(local: socket.socket, channel: Channel) -> None:
    with suppress(OSError):
        while part := local.recv(PART):
            channel.sendall(part)
        channel.shutdown_write()


def _receive(channel: Channel, local: socket.socket) -> None:
    with suppress(OSError):
        while part := channel.recv(PART):
            local.sendall(part)


def _last_line(channel: Channel) -> str:
    """Return what a command complained about last, such as that Docker is not installed there."""
    said = channel.recv_stderr(PART).decode(errors="replace") if channel.recv_stderr_ready() else ""
    return next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "")
