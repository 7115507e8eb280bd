"""A worker's connection to the guard that runs its commands."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from trainyard_runner.node import proctree
from trainyard_runner.wire import frames

_PIPE_BYTES = 1024 * 1024
# Seconds. A node that shuts down may end the guard just before the worker. A worker that is still
# alive after this time may report that the guard was killed.
_GOING_DOWN = 2.0
_guard: GuardLink | None = None


class GuardLink:
    """Starts a guard for this worker, and holds the socket to it."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        environment = {}
        for name, value in os.environ.items():
            if not name.startswith(("RAY_", "TRAINYARD_")):
                environment[name] = value

        with theirs:
            number = str(theirs.fileno())
            program = str(Path(__file__).with_name("guard.py"))
            # The started process exits at once. Its child, which becomes or starts the guard, is
            # then outside of the process tree that Ray knows.
            subprocess.run(
                [sys.executable, "-S", "-I", program, number],
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                check=True,
            )

    def send(self, message: dict[str, Any], *descriptors: int) -> None:
        frame = frames.pack(message)
        # The descriptors travel with the frame's head, which must arrive in one piece.
        socket.send_fds(self.socket, [frame[: frames.HEAD_BYTES]], list(descriptors))
        self.socket.sendall(frame[frames.HEAD_BYTES :])

    def receive(self) -> dict[str, Any] | None:
        """Await the guard's next message; return None if the guard is gone."""
        try:
            head = frames.exactly(self.socket, frames.HEAD_BYTES)
            body = frames.exactly(self.socket, frames.body_size(head))
        except (ConnectionError, EOFError):
            return None
        message: dict[str, Any] = json.loads(body)
        return message


def connected_guard() -> GuardLink:
    """Return this worker's guard; start one if there is none."""
    global _guard
    if _guard is not None:
        # Between commands, a readable socket means that the guard is gone.
        readable, _, _ = select.select([_guard.socket], [], [], 0)
        if readable:
            _guard = None
    if _guard is None:
        _guard = GuardLink()
    return _guard


class Child:
    """One command that the guard runs; `output` is a descriptor to read."""

    def __init__(
        self,
        command: list[str],
        *,
        directory: Path,
        environment: dict[str, str],
        mark: str,
        scratch: Path,
    ) -> None:
        """Have the guard start the command.

        If the start fails, `refused` becomes the reason. `mark`: a variable of
        the command's environment ("NAME=value"), by which its processes are
        found if the guard dies. `scratch`: the directory that the guard removes
        if this worker dies.
        """
        self._mark = mark
        self.guard = connected_guard()
        self.output, theirs = os.pipe()
        os.set_blocking(self.output, False)
        # Only Linux can enlarge a pipe, and the system's limit may be lower.
        with contextlib.suppress(AttributeError, OSError):
            fcntl.fcntl(self.output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

        request = {
            "argv": command,
            "cwd": str(directory),
            "env": environment,
            "scratch": str(scratch),
        }
        try:
            self.guard.send(request, theirs)
            answer = self.guard.receive()
        except ConnectionError:
            answer = None
        finally:
            os.close(theirs)

        if answer is None or "guard" in answer:
            answer = {"refused": "the guard process of this worker is gone"}
            self.abandon()

        self.refused: str | None = answer.get("refused")
        # The directories that were searched for a missing program.
        self.searched: list[str] = answer.get("path", [])
        self.pid: int = answer.get("pid", 0)

    def stop(self, grace: float) -> None:
        """Ask for SIGTERM, then SIGKILL after `grace` seconds; do not wait."""
        self._ask({"stop": grace, "dump": False})

    def dump_and_stop(self, grace: float) -> dict[str, Any] | None:
        """Have Python processes print their threads' stacks; end all processes.

        Returns None, or the guard's last message if the command had already
        ended by itself.
        """
        self._ask({"stop": grace, "dump": True})
        message = self.guard.receive()
        if message and "dumps" in message:
            return None
        return self._final(message)

    def ended(self) -> dict[str, Any]:
        """Wait until all processes end; return the guard's last message."""
        return self._final(self.guard.receive())

    def _ask(self, request: dict[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):
            self.guard.send(request)

    def _final(self, message: dict[str, Any] | None) -> dict[str, Any]:
        """Return the guard's last message.

        If the guard was killed, ends all processes, and waits _GOING_DOWN
        seconds.
        """
        if message is not None and "guard" not in message:
            return message
        self.abandon()
        time.sleep(_GOING_DOWN)
        return message or {"exit": None, "left": False}

    def files_written(self, below: Path, *, mapped_only: bool = False) -> set[str]:
        return proctree.files_written(self._processes(), str(below), mapped_only=mapped_only)

    def _processes(self) -> list[int]:
        # The guard is the parent of the command, and adopts its orphaned processes.
        guard = proctree.parent(self.pid)
        if guard > 1:
            return proctree.descendants(guard)
        return []

    def abandon(self) -> None:
        """Give up the guard; end the command's group and marked processes."""
        global _guard
        _guard = None
        self.guard.socket.close()
        proctree.end(lambda: proctree.with_environment(self._mark), grace=0.5)
        if getattr(self, "pid", 0):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        os.close(self.output)
