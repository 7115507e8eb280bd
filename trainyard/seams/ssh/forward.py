"""Ports and sockets of this machine that forward to another host by SSH.

Each connection has its own SSH channel. If the SSH connection breaks, only open
channels are lost: the next channel opens a new connection.
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
from trainyard_runner.wire.text import last_line

from trainyard.seams.forwarding import LOOPBACK, WAITING, Forward, loopback, shared
from trainyard.seams.ssh.connection import PART, Connection

# Errors of a send after the connection was closed (EOFError: paramiko's packet.py, write_all).
_BROKEN = (OSError, EOFError, SSHException)


def local_port(connection: Connection, port: int) -> int:
    """Return a local port that forwards to the host's. Raises HostError."""

    def serve(local: socket.socket) -> str:
        return _relay(local, connection.reach(LOOPBACK, port))

    connection.transport()
    return int(shared((connection, port), lambda: Forward(loopback(), serve)).address)


def local_socket(connection: Connection, command: Sequence[str]) -> Path:
    """Return a local socket whose connections each run a remote command.

    A connection is the command's stdin and stdout. Raises HostError.
    """

    def serve(local: socket.socket) -> str:
        channel = connection.session()
        channel.exec_command(shlex.join(command))
        return _relay(local, channel)

    connection.transport()
    return Path(shared((connection, *command), lambda: Forward(_unix_listener(), serve)).address)


def _unix_listener() -> socket.socket:
    directory = Path(tempfile.mkdtemp(prefix="trainyard-ssh-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(directory / "socket"))
    listener.listen(WAITING)
    return listener


def _relay(local: socket.socket, channel: Channel) -> str:
    """Pass bytes until the host's side ends; return its last stderr line."""
    with channel:
        threading.Thread(target=_send, args=(local, channel), daemon=True).start()
        _copy(channel.recv, local.sendall)
        printed = b""
        if channel.recv_stderr_ready():
            printed = channel.recv_stderr(PART)
        # Wakes the sending thread, which may wait for more input.
        with suppress(OSError):
            local.shutdown(socket.SHUT_RD)

    return last_line(printed.decode(errors="replace"))


def _send(local: socket.socket, channel: Channel) -> None:
    _copy(local.recv, channel.sendall)
    with suppress(*_BROKEN):
        channel.shutdown_write()


def _copy(receive: Callable[[int], bytes], send: Callable[[bytes], object]) -> None:
    with suppress(*_BROKEN):
        while part := receive(PART):
            send(part)
