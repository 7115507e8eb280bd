"""The guard, which starts an attempt's command and ends all its processes.

Each Ray worker process has one guard, which outlives the worker. The guard is a
separate program (`python -S -I guard.py FD`) outside of Ray's process tree. Ray
itself would end only direct children, and only when a worker exits in good
order (ray#26118, ray#34125). The guard is a subreaper: all processes that the
command starts stay its descendants, in any session. The guard ends them when
the command has ended, when the worker asks for it, and when the worker is gone
(the socket closes).

A task can kill the guard, its parent process. Therefore the guard has a parent,
also a subreaper. That parent waits until the guard is gone, ends the processes
that the guard left, and informs the worker. If the parent dies, the guard ends,
too.
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

# Python was started with -I, which leaves the package's directory out of sys.path.
sys.path.insert(0, str(Path(__file__).parents[2]))

from trainyard_runner.node import proctree
from trainyard_runner.wire import frames, tree

LEFTOVER_GRACE = 1.0
_DUMPED = 8
_DUMP_SECONDS = 1.0
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes (getrusage(2))
# Python ignores or handles some of these signals; a command expects their default effect.
_TO_DEFAULT = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


class Guard:
    """Runs commands for one worker, one at a time."""

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
        """Wait until the command ends, or the worker asks to end it.

        Returns the seconds from SIGTERM to SIGKILL for the remaining processes.
        Exits this process if the worker is gone.
        """
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
                    # If the command ended by itself already, the worker gets only the last message.
                    self._send({"dumps": True})
                    self._dump_stacks()
                return float(request["stop"])

    def _dump_stacks(self) -> None:
        """Abort the first _DUMPED processes that run Python, children first.

        With PYTHONFAULTHANDLER set, each prints its threads' stacks.
        """
        for pid in reversed(self._tree()[:_DUMPED]):
            if proctree.is_python(pid):
                proctree.abort(pid)
                proctree.gone_within(functools.partial(self._among, pid), _DUMP_SECONDS)

    def _among(self, pid: int) -> list[int]:
        if pid in self._tree():
            return [pid]
        return []

    def _end_all(self, grace: float) -> bool:
        """End remaining processes; return whether one could not be ended."""
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
        """Reap dead children; return whether no child is left."""
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
        """End all processes, remove the attempt's directories, and exit.

        Called when the worker is gone, or at SIGTERM.
        """
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
        """Await the worker's next request; return None if the worker is gone.

        The request's "output" is the descriptor of the command's output pipe.
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
            # The command gets the pipe only as stdout and stderr, not under this number.
            os.set_inheritable(descriptors[0], False)
        return request

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._control.sendall(frames.pack(message))
        except ConnectionError:
            self._abandon()


def _spawn(request: dict[str, Any]) -> int:
    """Start the command in a new session; return its pid."""
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
    """The program is missing in all searched directories (`path`)."""

    def __init__(self, program: str, path: list[str]) -> None:
        super().__init__(f"no program {program!r}")
        self.path = path


def _find(program: str, path: str) -> str:
    """Find a program as a shell would.

    `shutil.which` is not used, because importing `shutil` takes 10 ms.
    """
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
    """Say why a script cannot start: its first line's program is missing."""
    with contextlib.suppress(OSError), Path(script).open("rb") as file:
        first = file.readline(256).rstrip(b"\n").decode(errors="replace")
        if first.startswith("#!"):
            reason = f"its first line names a missing program: {first!r}"
            if first.endswith("\r"):
                reason += ", which ends with a carriage return: give it Unix line ends"
            return reason

    return os.strerror(errno.ENOENT)


def _is_executable(path: Path) -> bool:
    return os.access(path, os.X_OK) and not path.is_dir()


def _outlive(guard: int, control: socket.socket) -> None:
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
    """Leave the worker's process tree, then run commands for the worker.

    Where subreapers exist (Linux), this process forks the guard, and ends the
    processes that a killed guard left.
    """
    if os.fork():
        os._exit(0)

    os.setsid()
    os.chdir("/")
    is_reaper = proctree.become_subreaper()
    control = socket.socket(fileno=int(sys.argv[1]))
    # A command that inherited the socket would keep it open after the guard's death.
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
