"""The daemon behind a Docker socket of this machine: how it was started, its settings, and making it read them again.

Nothing of it is guessed from names: the kernel knows whose process answers on the socket.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from trainyard.errors import PrerequisiteError
from trainyard.seams.docker.engine import Engine

_PEER = struct.Struct("3i")  # struct ucred of unix(7): pid, uid, gid


@dataclass(frozen=True)
class Daemon:
    """A running dockerd: the words it was started with, and the directory of its configuration."""

    pid: int
    arguments: Sequence[str]
    home: Path

    @property
    def settings(self) -> Path:
        """Return its daemon.json, which need not exist."""
        given = self.home / "docker" / "daemon.json"
        for word, following in zip(self.arguments, [*self.arguments[1:], ""], strict=True):
            if word == "--config-file":
                given = Path(following)
            elif word.startswith("--config-file="):
                given = Path(word.partition("=")[2])
        return given

    @property
    def certificates(self) -> Path:
        """Return the directory with one directory of CAs per registry, read at each pull."""
        return self.home / "docker" / "certs.d"


def find(engine: Engine) -> Daemon | None:
    """Return the daemon that answers on the engine's socket, or None if it is no dockerd of this machine."""
    if sys.platform != "linux" or not engine.is_here:
        return None
    try:
        peer = psutil.Process(_peer(engine.address.removeprefix("unix://")))
        if peer.name() != "systemd":
            return _daemon(peer)
    except (psutil.Error, OSError, ValueError):
        return None
    # Where systemd listens for dockerd (`-H fd://`, as Debian has it), the socket's owner is systemd.
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.name() == "dockerd" and any("fd://" in word for word in process.cmdline()):
                return _daemon(process)
    return None


def reload(daemon: Daemon) -> None:
    """Make a daemon read its settings again, as `systemctl reload docker` does; containers go on running."""
    try:
        os.kill(daemon.pid, signal.SIGHUP)
    except PermissionError as error:
        raise PrerequisiteError("only root may make Docker read its settings again") from error


def _peer(path: str) -> int:
    """Return the pid of the process that listens on a Unix socket; 0 if it is outside of this container."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        return int(_PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[0])


def _daemon(process: psutil.Process) -> Daemon | None:
    """Return the daemon that a process is; None for another program, or one in a container, with files of its own."""
    program, *arguments = process.cmdline()
    with suppress(PermissionError):
        if Path(program).name != "dockerd" or not Path(f"/proc/{process.pid}/root").samefile("/"):
            return None
    environ: dict[str, str] = {}
    with suppress(psutil.AccessDenied):
        environ = process.environ()
    # A rootless daemon is root in a user namespace of its own; RootlessKit marks it so.
    if process.uids().real == 0 and "ROOTLESSKIT_STATE_DIR" not in environ:
        return Daemon(process.pid, arguments, Path("/etc"))
    home = Path(environ.get("HOME") or "~").expanduser()
    return Daemon(process.pid, arguments, Path(environ.get("XDG_CONFIG_HOME") or home / ".config"))
