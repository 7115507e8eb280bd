"""The daemon behind a Docker socket of this machine: how it was started, its settings, told to read them again.

Nothing of it is guessed from names: the kernel says whose process answers on the socket.
"""

from __future__ import annotations

import os
import shutil
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
from trainyard.seams.docker_engine import Engine

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
    """Return what dockerd itself says against a file of settings, or None; engines before 23.0 cannot be asked."""
    if shutil.which(daemon.program, path=environ.get("PATH")) is None:
        return None
    helped = programs.run([daemon.program, "--help"], env=environ, seconds=VALIDATE_SECONDS)
    if not any("--validate" in line for line in helped.tail):
        return None
    command = [daemon.program, *daemon.arguments, "--config-file", str(settings), "--validate"]
    ended = programs.run(command, env=environ, seconds=VALIDATE_SECONDS)
    return None if ended.code == 0 else " ".join(ended.tail[-3:])


def reload(daemon: Daemon) -> None:
    """Make a daemon read its settings again, as `systemctl reload docker` does; containers go on running."""
    try:
        os.kill(daemon.pid, signal.SIGHUP)
    except PermissionError as error:
        raise PrerequisiteError("only root may make Docker read its settings again") from error


def _peer(path: str) -> int:
    """Return the pid of whoever listens on a Unix socket; 0 if it is outside of this container."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(path)
        return int(_PEER.unpack(asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[0])


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
        if Path(program).name != "dockerd" or not _shares_files(pid):
            return None
        return Daemon(pid, _executable(process, program), tuple(arguments), _home(process))
    except (psutil.Error, OSError, ValueError):
        return None


def _shares_files(pid: int) -> bool:
    """Say whether a process sees our files: one in a container has a root of its own."""
    try:
        return Path(f"/proc/{pid}/root").samefile("/")
    except PermissionError:
        return True


def _executable(process: psutil.Process, word: str) -> str:
    """Return the path of a running program; the word that started it, where an update has replaced the file."""
    try:
        path = process.exe()
    except psutil.AccessDenied:
        return word
    return path if Path(path).exists() else word


def _home(process: psutil.Process) -> Path:
    """Return where a daemon looks for its configuration: /etc, or a rootless one's ~/.config."""
    uid = process.uids().real
    environ = _environ(process)
    # A rootless daemon is root in a user namespace of its own; RootlessKit tells it so.
    if uid == 0 and "ROOTLESSKIT_STATE_DIR" not in environ:
        return Path("/etc")
    home = Path(environ.get("HOME") or "~").expanduser()
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config")


def _environ(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.AccessDenied:
        return {}
