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
import sys
from pathlib import Path
from typing import Any

# Started by path and isolated (-I): the package must be found by hand.
sys.path.insert(0, str(Path(__file__).parents[2]))

from trainyard_runner.node import proctree
from trainyard_runner.wire import frames, tree

LEFTOVER_GRACE = 1.0
_DUMPED = 8
_DUMP_SECONDS = 1.0
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes (getrusage(2))
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
        request = self._receive()
        while request is not None:
            if "argv" in request:
                self._run(request)
            request = self._receive()

    def _run(self, request: dict[str, Any]) -> None:
        self._status = None
        self._cpu = 0.0
        self._rss = 0
        self._scratch = request["scratch"]

        try:
            self._main = _spawn(request)
        except NoProgramError as error:
            self._send({"refused": str(error), "path": error.path})
            return
        except (OSError, ValueError) as error:
            problem = getattr(error, "strerror", None) or error
            self._send({"refused": f"cannot start {request['argv'][0]!r}: {problem}"})
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
        """Wait until the command ended or must end; return the seconds that its tree then has."""
        while True:
            self._reap()
            if self._status is not None:
                return LEFTOVER_GRACE

            ready, _, _ = select.select([self._control.fileno(), self._wake], [], [])
            self._drain()
            if self._control.fileno() not in ready:
                continue

            request = self._receive()
            if request is None:
                self._abandon()
            elif "stop" in request:
                if request["dump"]:
                    # Not sent if the command has just ended by itself: then only its end is.
                    self._send({"dumps": True})
                    self._dump_stacks()
                return float(request["stop"])

    def _dump_stacks(self) -> None:
        """Have Python print its threads' stacks (PYTHONFAULTHANDLER), children first."""
        for pid in reversed(self._tree()[:_DUMPED]):
            if proctree.is_python(pid):
                proctree.abort(pid)
                proctree.gone_within(functools.partial(self._among, pid), _DUMP_SECONDS)

    def _among(self, pid: int) -> list[int]:
        if pid in self._tree():
            return [pid]
        return []

    def _end_all(self, grace: float) -> bool:
        """End the rest of the tree; return whether a process of it could not be ended."""
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
                self._rss = max(self._rss, usage.ru_maxrss * _RSS_UNIT)
                if pid == self._main:
                    self._status = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            return True

    def _abandon(self) -> None:
        """End the tree, remove its directories and exit: the worker is gone, or ends this guard."""
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
        """Return the next request, None when the worker is gone.

        "output" is the descriptor that came with it: the pipe for a command's output.
        """
        try:
            head, descriptors, _, _ = socket.recv_fds(self._control, frames.HEAD_BYTES, 1)
            if len(head) < frames.HEAD_BYTES:
                return None
            body = frames.exactly(self._control, frames.body_size(head))
        except (ConnectionError, EOFError):
            return None

        request: dict[str, Any] = json.loads(body)
        if descriptors:
            request["output"] = descriptors[0]
            # The command gets it as its stdout and stderr only.
            os.set_inheritable(descriptors[0], False)
        return request

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._control.sendall(frames.pack(message))
        except ConnectionError:
            self._abandon()


def _spawn(request: dict[str, Any]) -> int:
    """Start the command in a session of its own; return its pid."""
    argv = request["argv"]
    environment = request["env"]
    session: dict[str, Any] = {"setpgroup": 0}
    if sys.platform.startswith("linux"):
        session = {"setsid": True}
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, request["output"], 1),
        (os.POSIX_SPAWN_DUP2, request["output"], 2),
    ]

    os.chdir(request["cwd"])
    try:
        program = _find(argv[0], environment.get("PATH", os.defpath))
        return os.posix_spawn(
            program,
            argv,
            environment,
            file_actions=actions,
            setsigmask=[],
            setsigdef=_TO_DEFAULT,
            **session,
        )
    except FileNotFoundError as error:
        raise OSError(errno.ENOENT, _first_line_reason(program)) from error
    finally:
        os.chdir("/")


class NoProgramError(Exception):
    """A program that does not exist in the directories `path`, which were searched for it."""

    def __init__(self, program: str, path: list[str]) -> None:
        super().__init__(f"no program {program!r}")
        self.path = path


def _find(program: str, path: str) -> str:
    """Find a program as a shell would, from the current directory (importing `shutil`: 10 ms)."""
    if "/" in program:
        if _is_executable(Path(program)):
            return program
        if Path(program).exists():
            raise PermissionError(13, "it is not an executable file")
        raise NoProgramError(program, [])

    places = list(dict.fromkeys(path.split(os.pathsep)))
    for place in places:
        candidate = Path(place, program)
        if _is_executable(candidate):
            return str(candidate)
    raise NoProgramError(program, places)


def _first_line_reason(script: str) -> str:
    """Say why a script that exists could not be started: its interpreter does not exist."""
    with contextlib.suppress(OSError), Path(script).open("rb") as file:
        first = file.readline(256).rstrip(b"\n").decode(errors="replace")
        if first.startswith("#!"):
            reason = f"its first line names no program: {first!r}"
            if first.endswith("\r"):
                reason += ", which ends with a carriage return: give it Unix line ends"
            return reason

    return os.strerror(errno.ENOENT)


def _is_executable(path: Path) -> bool:
    return os.access(path, os.X_OK) and not path.is_dir()


def _outlive(guard: int, control: socket.socket) -> None:
    """Wait for the guard's end, end the processes that it left, then tell the worker."""
    os.waitpid(guard, 0)
    is_clean = proctree.end(_orphans, grace=LEFTOVER_GRACE)
    with contextlib.suppress(OSError):  # the worker may be gone, too
        control.sendall(frames.pack({"guard": "killed", "exit": None, "left": not is_clean}))


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

    if is_reaper:
        guard = os.fork()
        if guard:
            _outlive(guard, control)
            return
        proctree.become_subreaper()
        proctree.end_with_parent()

    Guard(control, is_reaper=is_reaper).serve()


if __name__ == "__main__":
    main()
