"""Process trees: who descends from whom, which files they write, and how to end them all."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_PROC = Path("/proc")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> bool:
    """Make orphaned descendants children of this process, where the system can (Linux)."""
    if not sys.platform.startswith("linux"):
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def end_with_parent() -> None:
    """Have this process get SIGTERM when its parent ends (Linux)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def descendants(root: int) -> list[int]:
    """Return the processes below `root`, parents before children, without `root` itself."""
    children = (
        _children_from_kernel
        if Path(f"/proc/{root}/task/{root}/children").exists()
        else _children_from_table()
    )
    found: list[int] = []
    frontier = [root]
    while frontier:
        below = [child for parent in frontier for child in children(parent)]
        found += below
        frontier = below
    return found


def parent(pid: int) -> int:
    """Return a process's parent; 0 when it is gone."""
    for below, above in _parents([pid]):
        if below == pid:
            return above
    return 0


def with_environment(entry: str) -> list[int]:
    """Return the processes that were started with `entry` ("NAME=value") in their environment;
    Linux only.
    """
    wanted = os.fsencode(entry)
    return [
        pid for pid in _all_pids() if wanted in _read(_PROC / str(pid) / "environ").split(b"\0")
    ]


def in_group(group: int) -> list[int]:
    """Return the group as something `send` can end, while it has members: for systems without
    subreapers.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, 0)
        return [-group]
    return []


def send(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to each process that is still there and ours."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end(list_pids: Callable[[], list[int]], *, grace: float) -> bool:
    """End processes: SIGTERM, `grace` seconds, SIGKILL. Return whether none is left.

    The list is asked for again and again, because a dying tree may still grow.
    """
    send(list_pids(), signal.SIGTERM)
    if gone_within(list_pids, grace):
        return True
    give_up = time.monotonic() + 5.0
    while time.monotonic() < give_up:
        send(list_pids(), signal.SIGKILL)
        if gone_within(list_pids, 0.1):
            return True
    return False


def gone_within(list_pids: Callable[[], list[int]], seconds: float) -> bool:
    """Wait until there are no such processes; say whether that was so in time."""
    give_up = time.monotonic() + seconds
    while list_pids():
        if time.monotonic() >= give_up:
            return False
        time.sleep(0.01)
    return True


def abort(pid: int) -> None:
    """End a process, unless it has just ended, by SIGABRT; it leaves no core file (Linux)."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        os.kill(pid, signal.SIGABRT)


def is_python(pid: int) -> bool:
    """Tell whether a process runs Python (Linux)."""
    with contextlib.suppress(OSError):
        return (_PROC / str(pid) / "exe").readlink().name.startswith("python")
    return False


def files_open_for_writing(pids: list[int], below: str) -> set[str]:
    """Return the paths below a directory that these processes have open for writing; empty where
    /proc is missing.
    """
    prefix = below.rstrip("/") + "/"
    return {path for pid in pids for path in _written_by(pid) if path.startswith(prefix)}


def files_mapped_for_writing(pids: list[int], below: str) -> set[str]:
    """Return the paths below a directory that these processes can write in their memory; empty
    without /proc.
    """
    prefix = below.rstrip("/") + "/"
    return {path for pid in pids for path in _mapped_by(pid) if path.startswith(prefix)}


def _mapped_by(pid: int) -> Iterator[str]:
    """Yield paths of "7f..-7f.. rw-s 00000000 fe:00 1234   /path" (proc(5)), where a new line is
    written as \\012.
    """
    for line in _read(_PROC / str(pid) / "maps").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[1][1:2] == b"w" and fields[1][3:4] == b"s":
            yield os.fsdecode(fields[5].replace(b"\\012", b"\n"))


def _written_by(pid: int) -> Iterator[str]:
    for descriptor in _listing(_PROC / str(pid) / "fd"):
        with contextlib.suppress(OSError):
            path = str(descriptor.readlink())
            if path.startswith("/") and _is_writable(
                _read(_PROC / str(pid) / "fdinfo" / descriptor.name)
            ):
                yield path


def _is_writable(fdinfo: bytes) -> bool:
    """Tell from "flags:\\t0100002" (octal, proc(5)) whether a descriptor can write."""
    for line in fdinfo.splitlines():
        if line.startswith(b"flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _children_from_kernel(parent: int) -> list[int]:
    """Read /proc/PID/task/*/children (Linux with CONFIG_PROC_CHILDREN): each thread lists what it
    forked.
    """
    threads = _listing(_PROC / str(parent) / "task")
    return [int(pid) for thread in threads for pid in _read(thread / "children").split()]


def _children_from_table() -> Callable[[int], list[int]]:
    """Return the same from a list of all processes."""
    table: dict[int, list[int]] = {}
    for pid, parent in _parents():
        table.setdefault(parent, []).append(pid)
    return lambda parent: table.get(parent, [])


def _parents(pids: list[int] | None = None) -> Iterator[tuple[int, int]]:
    if not _PROC.joinpath("self").exists():
        listing = subprocess.run(
            ["ps", "-axo", "pid=,ppid="], capture_output=True, check=True, text=True
        ).stdout
        for line in listing.splitlines():
            pid, parent = line.split()
            yield int(pid), int(parent)
        return
    for number in _all_pids() if pids is None else pids:
        # The second field is the program's name in parentheses and may itself contain anything.
        fields = _read(_PROC / str(number) / "stat").rpartition(b")")[2].split()
        if len(fields) > 1:
            yield number, int(fields[1])


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in _listing(_PROC) if entry.name.isdigit()]


def _listing(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
