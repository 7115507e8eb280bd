"""The daemon behind a local Docker socket: its arguments, settings and reload.

The kernel says which process answers on the socket: no name is guessed.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from trainyard.errors import PrerequisiteError
from trainyard.seams.docker.engine import Engine

SETTINGS = Path("/etc/docker/daemon.json")
# One directory of CAs per registry, read at each pull.
CERTIFICATES = Path("/etc/docker/certs.d")


@dataclass(frozen=True)
class Daemon:
    """A running dockerd, and the arguments of its command line."""

    pid: int
    arguments: Sequence[str]

    @property
    def settings(self) -> Path:
        """Return the path of daemon.json, which need not exist."""
        flags = ArgumentParser(add_help=False, allow_abbrev=False)
        flags.add_argument("--config-file", default=SETTINGS)
        return Path(flags.parse_known_args(self.arguments)[0].config_file)


def find(engine: Engine) -> Daemon | None:
    """Return the engine's daemon if it is a dockerd that root runs here."""
    if sys.platform != "linux" or not engine.is_here:
        return None

    with suppress(psutil.Error, OSError, ValueError):
        peer = psutil.Process(_peer(engine.address.removeprefix("unix://")))
        if peer.name() != "systemd":
            return _daemon(peer)

        # With socket activation (`-H fd://`, as on Debian), systemd owns the socket.
        for process in psutil.process_iter(["name", "cmdline"]):
            words = " ".join(process.info["cmdline"] or ())
            if process.info["name"] == "dockerd" and "fd://" in words:
                return _daemon(process)

    return None


def reload(daemon: Daemon) -> None:
    """Make a daemon read its settings again, as `systemctl reload` does.

    Containers continue to run.
    """
    try:
        os.kill(daemon.pid, signal.SIGHUP)
    except PermissionError as error:
        raise PrerequisiteError("only root may make Docker read its settings again") from error


def _peer(path: str) -> int:
    """Return the pid that listens on a socket; 0 if outside this container."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        # struct ucred of unix(7).
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, _uid, _gid = struct.unpack("3i", credentials)
        return int(pid)


def _daemon(process: psutil.Process) -> Daemon | None:
    """Return the daemon of root's dockerd outside of containers, else None."""
    program, *arguments = process.cmdline()
    if Path(program).name != "dockerd" or process.uids().real != 0:
        return None
    with suppress(PermissionError):
        if not Path(f"/proc/{process.pid}/root").samefile("/"):
            return None
    return Daemon(process.pid, arguments)
