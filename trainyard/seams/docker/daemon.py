"""The daemon behind a Docker socket of this machine: how it was started, its settings, and making it read them again.

Nothing of it is guessed from names: the kernel knows whose process answers on the socket.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from trainyard.errors import PrerequisiteError
from trainyard.seams import programs
from trainyard.seams.docker.engine import Engine

SETTINGS = "docker/daemon.json"
VALIDATE_SECONDS = 20.0
_PEER = struct.Struct("3i")  # struct ucred of unix(7): pid, uid, gid


@dataclass(frozen=True)
class Daemon:
    """A running dockerd: its program, the words it was started with, and the directory of its configuration."""

    pid: int
    program: str
    arguments: tuple[str, ...]
    home: Path

    @property
    def settings(self) -> Path:
        """Return its daemon.json, which need not exist."""
        given = list(values(self.arguments, "--config-file"))
        return Path(given[-1]) if given else self.home / SETTINGS

    @property
    def certificates(self) -> Path:
        """Return the directory with one directory of CAs per registry, read at each pull."""
        return self.home / "docker" / "certs.d"


def find(engine: Engine) -> Daemon | None:
    """Return the daemon that answers on the engine's socket, or None if it is no dockerd of this machine."""
    if sys.platform != "linux" or not engine.is_here:
        return None
    peer = _peer(engine.address.removeprefix("unix://"))
    # Where systemd listens for dockerd (`-H fd://`, as Debian has it), the socket's owner is systemd.
    return next(_socket_activated(), None) if _is_systemd(peer) else _daemon(peer)


def values(arguments: Sequence[str], flag: str) -> Iterator[str]:
    """Yield what a flag is given: `--flag value` or `--flag=value`, each time it is there."""
    for index, word in enumerate(arguments):
        if word == flag and index + 1 < len(arguments):
            yield arguments[index + 1]
        elif word.startswith(f"{flag}="):
            yield word.partition("=")[2]


def complaint(daemon: Daemon, settings: Path, environ: Mapping[str, str]) -> str | None:
    """Return what dockerd itself objects to in a file of settings, or None; engines before 23.0 cannot be asked."""
    command = [daemon.program, *daemon.arguments, "--config-file", str(settings), "--validate"]
    ended = programs.run(command, env=environ, seconds=VALIDATE_SECONDS)
    said = " ".join(ended.tail[-3:])
    return None if ended.code in (0, programs.NOT_FOUND) or "unknown flag: --validate" in said else said


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


def _is_systemd(pid: int) -> bool:
    with suppress(psutil.Error, ValueError):
        return pid > 0 and psutil.Process(pid).name() == "systemd"
    return False


def _socket_activated() -> Iterator[Daemon]:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.name() == "dockerd" and any("fd://" in word for word in process.cmdline()):
                daemon = _daemon(process.pid)
                if daemon:
                    yield daemon


def _daemon(pid: int) -> Daemon | None:
    try:
        process = psutil.Process(pid)
        program, *arguments = process.cmdline()
        if Path(program).name != "dockerd":
            return None
        # A process in a container has files of its own under the same names; only root may look at another's.
        with suppress(PermissionError):
            if not Path(f"/proc/{pid}/root").samefile("/"):
                return None
        return Daemon(pid, program, tuple(arguments), _home(process))
    except (psutil.Error, OSError, ValueError):
        return None


def _home(process: psutil.Process) -> Path:
    """Return where a daemon looks for its configuration: /etc, or a rootless one's ~/.config."""
    environ: dict[str, str] = {}
    with suppress(psutil.AccessDenied):
        environ = process.environ()
    # A rootless daemon is root in a user namespace of its own; RootlessKit tells it so.
    if process.uids().real == 0 and "ROOTLESSKIT_STATE_DIR" not in environ:
        return Path("/etc")
    home = Path(environ.get("HOME") or "~").expanduser()
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
