"""The guard: starts an attempt's command and never lets a process of it live longer than it may.

One guard belongs to one Ray worker process and outlives it. It is a program of its own (`python -S
-I guard.py FD`), put under no parent that Ray knows, because Ray ends only direct children and only
when a worker exits in good order (ray#26118, ray#34125). It is a subreaper: whatever the command
starts, in whichever session, stays below it, and is ended when the command ended, when the worker
asks, and when the worker is gone (the socket closes).

A task can kill its guard: it is the task's parent. So the guard has a parent of its own, a
subreaper too, which does nothing until the guard is gone; then it ends what the guard left, and
tells the worker. A guard ends with its parent.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import select
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any

# Started by path and isolated (-I): the package must be found by hand.
sys.path.insert(0, str(Path(__file__).parents[2]))

from trainyard_runner.node import proctree
from trainyard_runner.wire import tree

LENGTH = struct.Struct("!I")
LEFTOVER_GRACE = 1.0
_DUMPED = 8
_DUMP_SECONDS = 1.0
# Python ignores these; a command expects their usual effect.
_TO_DEFAULT = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


class Guard:
    """Serves one worker, one command at a time."""

    def __init__(self, control: socket.socket, *, is_reaper: bool) -> None:
        self._control = control
        self._is_reaper = is_reaper
        self._wake, wake_writer = os.pipe()
        for descriptor in (self._wake, wake_writer):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._abandon())
        self._main = 0
        self._scratch = ""
        self._status: int | None = None
        self._cpu = 0.0
        self._rss = 0

    def serve(self) -> None:
        while (request := self._receive()) is not None:
            if "argv" in request:
                self._run(request)

    def _run(self, request: dict[str, Any]) -> None:
        self._status = None
        self._cpu = 0.0
        self._rss = 0
        self._scratch = request["scratch"]

        try:
            self._main = _spawn(request)
        except NoProgramError as error:
            self._send({"refused": str(error), "close": error.close, "path": error.path})
            return
        except (OSError, ValueError) as error:
            self._send(
                {
                    "refused": (
                        f"cannot start {request['argv'][0]!r}: "
                        f"{getattr(error, 'strerror', None) or error}"
                    )
                }
            )
            return
        finally:
            os.close(request["output"])

        self._send({"pid": self._main})
        grace = self._watch()
        is_left = self._end_all(grace)

        self._send(
            {
                "exit": self._status,
                "cpu_seconds": round(self._cpu, 3),
                "max_rss": self._rss,
                "left": is_left,
            }
        )

    def _watch(self) -> float:
        """Wait until the command ended by itself or must end; return how long its tree has to go by
        itself.
        """
        while True:
            self._reap()
            if self._status is not None:
                return LEFTOVER_GRACE

            ready, _, _ = select.select([self._control.fileno(), self._wake], [], [])
            self._drain()
            if self._control.fileno() in ready:
                request = self._receive()
                if request is None:
                    self._abandon()
                elif "stop" in request:
                    if request["dump"]:
                        # A command that has just ended by itself gets no such answer, only the last
                        # word.
                        self._send({"dumps": True})
                        self._dump_stacks()
                    return float(request["stop"])

    def _dump_stacks(self) -> None:
        """Have Python print where its threads are (PYTHONFAULTHANDLER), children first."""
        for pid in reversed(self._tree()[:_DUMPED]):
            if proctree.is_python(pid):
                proctree.abort(pid)
                proctree.gone_within(functools.partial(self._among, pid), _DUMP_SECONDS)

    def _among(self, pid: int) -> list[int]:
        return [pid] if pid in self._tree() else []

    def _end_all(self, grace: float) -> bool:
        """End what is left of the tree; return whether something would not go."""
        if self._reap() and self._is_reaper:
            return False
        return not proctree.end(self._tree, grace=grace)

    def _tree(self) -> list[int]:
        self._reap()
        tree = proctree.descendants(os.getpid())
        if self._is_reaper:
            return tree
        return [*tree, *proctree.in_group(self._main)]

    def _reap(self) -> bool:
        """Collect the dead; return whether no child is left (one system call in the usual case)."""
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return False
                self._cpu += usage.ru_utime + usage.ru_stime
                self._rss = max(
                    self._rss, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
                )
                if pid == self._main:
                    self._status = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            return True

    def _abandon(self) -> None:
        """The worker is gone, or somebody ends this guard: leave nothing behind."""
        proctree.end(self._tree, grace=LEFTOVER_GRACE)
        if self._scratch:
            with contextlib.suppress(OSError):
                tree.remove(self._scratch)
        os._exit(0)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake, 512):
                pass

    def _receive(self) -> dict[str, Any] | None:
        """Return the next request; None when the worker is gone. A command's output descriptor
        travels with it.
        """
        try:
            head, descriptors, _, _ = socket.recv_fds(self._control, LENGTH.size, 1)
            if len(head) < LENGTH.size:
                return None

            body = b""
            size = LENGTH.unpack(head)[0]
            while len(body) < size:
                part = self._control.recv(size - len(body))
                if not part:
                    return None
                body += part
        except ConnectionError:
            return None

        request: dict[str, Any] = json.loads(body)
        if descriptors:
            request["output"] = descriptors[0]
            # The command has it as its stdout and stderr, and as nothing else.
            os.set_inheritable(descriptors[0], False)

        return request

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        try:
            self._control.sendall(LENGTH.pack(len(body)) + body)
        except ConnectionError:
            self._abandon()


def _spawn(request: dict[str, Any]) -> int:
    """Start the command in a session of its own; return its pid."""
    argv = request["argv"]
    environment = request["env"]
    os.chdir(request["cwd"])

    try:
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, request["output"], 1),
            (os.POSIX_SPAWN_DUP2, request["output"], 2),
        ]

        program = _find(argv[0], environment.get("PATH", os.defpath))
        own: dict[str, Any] = (
            {"setsid": True} if sys.platform.startswith("linux") else {"setpgroup": 0}
        )
        try:
            return os.posix_spawn(
                program,
                argv,
                environment,
                file_actions=actions,
                setsigmask=[],
                setsigdef=_TO_DEFAULT,
                **own,
            )
        except FileNotFoundError as error:
            raise OSError(errno.ENOENT, _first_line_reason(program)) from error
    finally:
        os.chdir("/")


class NoProgramError(Exception):
    """A program that does not exist; `close` is the name of one that does, in the `path` that was
    searched.
    """

    def __init__(self, program: str, path: list[str]) -> None:
        super().__init__(f"no program {program!r}")
        self.path = path
        self.close = _closest(program, path)


def _closest(program: str, path: list[str]) -> str:
    import difflib  # costs 10 ms, and every attempt has a guard

    known: set[str] = set()
    for place in path:
        with contextlib.suppress(OSError):
            known.update(entry.name for entry in os.scandir(place))
    return next(iter(difflib.get_close_matches(program, known, n=1, cutoff=0.75)), "")


def _find(program: str, path: str) -> str:
    """Find a program as a shell would, relative to the current directory (`shutil` costs 10 ms to
    import).
    """
    if "/" in program:
        places = [""]
    else:
        places = list(dict.fromkeys(path.split(os.pathsep)))
    for candidate in (Path(place, program) for place in places):
        if os.access(candidate, os.X_OK) and not candidate.is_dir():
            return str(candidate)
    if "/" in program and Path(program).exists():
        raise PermissionError(13, "it is not an executable file")
    raise NoProgramError(program, [] if "/" in program else places)


def _first_line_reason(script: str) -> str:
    """Say why a script that is there could not be started: the interpreter that its first line
    names is not.
    """
    with contextlib.suppress(OSError), Path(script).open("rb") as file:
        first = file.readline(256)
        if first.startswith(b"#!"):
            if first.endswith(b"\r\n"):
                ends = ", which ends with a carriage return: give it Unix line ends"
            else:
                ends = ""
            return (
                "its first line names no program: "
                f"{first.decode(errors='replace').rstrip(chr(10))!r}{ends}"
            )
    return os.strerror(errno.ENOENT)


def _outlive(guard: int, control: socket.socket) -> None:
    """Wait for the guard's end, end what it left, then say so to the worker, if that is still
    there.
    """
    os.waitpid(guard, 0)
    is_clean = proctree.end(_orphans, grace=LEFTOVER_GRACE)
    body = json.dumps({"guard": "killed", "exit": None, "left": not is_clean}).encode()
    with contextlib.suppress(OSError):
        control.sendall(LENGTH.pack(len(body)) + body)


def _orphans() -> list[int]:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return proctree.descendants(os.getpid())


def main() -> None:
    """Leave the worker's process tree, then serve it."""
    if os.fork():
        os._exit(0)

    os.setsid()
    os.chdir("/")
    is_reaper = proctree.become_subreaper()
    control = socket.socket(fileno=int(sys.argv[1]))
    # A command that held it would hide the guard's death from the worker.
    control.set_inheritable(False)

    if is_reaper and (guard := os.fork()):
        _outlive(guard, control)
        return

    if is_reaper:
        proctree.become_subreaper()
        proctree.end_with_parent()

    Guard(control, is_reaper=is_reaper).serve()


if __name__ == "__main__":
    main()
