"""A worker's side of its guard: start a command, hear how it ended, be sure that nothing of it
stays.
"""

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
from trainyard_runner.node.guard import LENGTH

_PIPE_BYTES = 1024 * 1024
# A node that goes down may end a guard before its worker: who outlives its guard by this was not on
# such a node.
_GOING_DOWN = 2.0
_guard: GuardLink | None = None


class GuardLink:
    """The socket to this worker's guard."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        environment = {}
        for name, value in os.environ.items():
            if not name.startswith(("RAY_", "TRAINYARD_")):
                environment[name] = value

        with theirs:
            number = str(theirs.fileno())
            # The started process leaves at once; its child is the guard, which Ray then does not
            # know.
            subprocess.run(
                [sys.executable, "-S", "-I", str(Path(__file__).with_name("guard.py")), number],
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                check=True,
            )

    def send(self, message: dict[str, Any], *descriptors: int) -> None:
        body = json.dumps(message).encode()
        socket.send_fds(self.socket, [LENGTH.pack(len(body))], list(descriptors))
        self.socket.sendall(body)

    def receive(self) -> dict[str, Any] | None:
        """Wait for the guard's next word; None when the guard is gone."""
        try:
            head = self._exactly(LENGTH.size)
            body = self._exactly(LENGTH.unpack(head)[0])
        except (ConnectionError, EOFError):
            return None
        message: dict[str, Any] = json.loads(body)
        return message

    def _exactly(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            part = self.socket.recv(size - len(received))
            if not part:
                raise EOFError
            received += part
        return received


def connected_guard() -> GuardLink:
    """Return this worker's guard; start it the first time, and again if it is gone, which is all it
    says unasked.
    """
    global _guard
    if _guard is None or select.select([_guard.socket], [], [], 0)[0]:
        _guard = GuardLink()
    return _guard


class Child:
    """One command under the guard; `output` reads what it prints."""

    def __init__(
        self,
        command: list[str],
        *,
        directory: Path,
        environment: dict[str, str],
        mark: str,
        scratch: Path,
    ) -> None:
        """Start the command.

        `mark` ("NAME=value", part of its environment) finds its processes if the guard dies;
        `scratch` is what the guard removes if this worker dies.
        """
        self._mark = mark
        self.guard = connected_guard()
        self.output, theirs = os.pipe()
        os.set_blocking(self.output, False)

        with contextlib.suppress(
            AttributeError, OSError
        ):  # Linux has it; a low limit of the system may forbid it
            fcntl.fcntl(self.output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

        try:
            self.guard.send(
                {
                    "argv": command,
                    "cwd": str(directory),
                    "env": environment,
                    "scratch": str(scratch),
                },
                theirs,
            )

            answer = self.guard.receive()
        except ConnectionError:
            answer = None
        finally:
            os.close(theirs)

        if answer is None or "guard" in answer:
            answer = {"refused": "the guard process of this worker is gone"}
            self.abandon()

        self.refused: str | None = answer.get("refused")
        # Of a program that does not exist: the name of one that does, and where was searched.
        self.close_program: str | None = answer.get("close")
        self.searched: list[str] = answer.get("path", [])
        self.pid: int = answer.get("pid", 0)

    def stop(self, grace: float) -> None:
        """Ask the guard to end the command's whole tree."""
        self._ask({"stop": grace, "dump": False})

    def dump_and_stop(self, grace: float) -> dict[str, Any] | None:
        """Have Python print its threads' stacks, then end the whole tree.

        Return the guard's last word instead if the command had ended by itself.
        """
        self._ask({"stop": grace, "dump": True})
        message = self.guard.receive()
        if message and "dumps" in message:
            return None
        return self._final(message)

    def ended(self) -> dict[str, Any]:
        """Return the guard's last word."""
        return self._final(self.guard.receive())

    def _ask(self, request: dict[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):
            self.guard.send(request)

    def _final(self, message: dict[str, Any] | None) -> dict[str, Any]:
        """Return the last word; when the guard was killed, and its parent too, end its tree as well
        as can be.
        """
        if message is not None and "guard" not in message:
            return message
        self.abandon()
        time.sleep(_GOING_DOWN)
        return message or {"exit": None, "left": False}

    def files_open_for_writing(self, below: Path) -> set[str]:
        """Return which files below a directory the command's processes have open for writing, or in
        their memory.
        """
        tree = self._processes()
        open_files = proctree.files_open_for_writing(tree, str(below))
        return open_files | proctree.files_mapped_for_writing(tree, str(below))

    def files_mapped_for_writing(self, below: Path) -> set[str]:
        """Return which files below a directory the command's processes can write in their
        memory.
        """
        return proctree.files_mapped_for_writing(self._processes(), str(below))

    def _processes(self) -> list[int]:
        # The guard is the command's parent, and of everything that left the command.
        guard = proctree.parent(self.pid)
        if guard > 1:
            return proctree.descendants(guard)
        return []

    def abandon(self) -> None:
        """End the command without its guard: everything that carries its mark, and its process
        group.
        """
        global _guard
        _guard = None
        self.guard.socket.close()
        proctree.end(lambda: proctree.with_environment(self._mark), grace=0.5)
        if getattr(self, "pid", 0):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        os.close(self.output)
