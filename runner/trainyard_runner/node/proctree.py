"""Lists processes and the files that they can write, and ends processes."""

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
    """Adopt orphaned descendants from now on; return False outside of Linux."""
    if not sys.platform.startswith("linux"):
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def end_with_parent() -> None:
    """Ask for SIGTERM when the parent ends (Linux)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def descendants(root: int) -> list[int]:
    """Return the processes below `root`, parents before children."""
    children: Callable[[int], list[int]]
    if Path(f"/proc/{root}/task/{root}/children").exists():
        children = _children_from_kernel
    else:
        children = _children_from_table()

    tree: list[int] = []
    generation = [root]
    while generation:
        next_generation = []
        for pid in generation:
            next_generation += children(pid)
        tree += next_generation
        generation = next_generation
    return tree


def parent(pid: int) -> int:
    """Return a process's parent; 0 when the process is gone."""
    for child, its_parent in _parents([pid]):
        if child == pid:
            return its_parent
    return 0


def with_environment(entry: str) -> list[int]:
    """Return the processes started with `entry` in their environment.

    `entry` has the form "NAME=value". Finds only processes whose environment
    this user may read in /proc.
    """
    wanted = os.fsencode(entry)
    found = []
    for pid in _all_pids():
        variables = _read(_PROC / str(pid) / "environ").split(b"\0")
        if wanted in variables:
            found.append(pid)
    return found


def in_group(group: int) -> list[int]:
    """Return [-group] while the group has members; else [].

    `send` accepts -group as a pid. For systems without subreapers.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, 0)
        return [-group]
    return []


def send(pids: list[int], number: signal.Signals) -> None:
    """Signal processes; skip those that are gone or belong to another user."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end(list_pids: Callable[[], list[int]], *, grace: float) -> bool:
    """End processes; return whether none is left.

    Sends SIGTERM, and after `grace` seconds SIGKILL for at most 5 s.
    `list_pids` is called again before each signal: processes may still start
    others.
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
    """Wait until `list_pids` returns []; return False after `seconds`."""
    give_up = time.monotonic() + seconds
    while list_pids():
        if time.monotonic() >= give_up:
            return False
        time.sleep(0.01)
    return True


def abort(pid: int) -> None:
    """End a process, if it runs, by SIGABRT without a core file (Linux)."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        os.kill(pid, signal.SIGABRT)


def is_python(pid: int) -> bool:
    """Return whether a process runs Python (Linux)."""
    with contextlib.suppress(OSError):
        return (_PROC / str(pid) / "exe").readlink().name.startswith("python")
    return False


def files_written(pids: list[int], below: str, *, mapped_only: bool = False) -> set[str]:
    """Return full paths of files that processes have mapped for writing.

    Without `mapped_only`, files open for writing count, too. Without /proc, no
    files are found.
    """
    paths: set[str] = set()
    for pid in pids:
        paths.update(_mapped_by(pid))
        if not mapped_only:
            paths.update(_open_in(pid))
    prefix = below.rstrip("/") + "/"
    return {path for path in paths if path.startswith(prefix)}


def _mapped_by(pid: int) -> Iterator[str]:
    """Yield the files of a process's shared, writable mappings (proc(5)).

    A line is "7f..-7f.. rw-s 00000000 fe:00 1234   /path". A newline in a path
    is \\012.
    """
    for line in _read(_PROC / str(pid) / "maps").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[1][1:2] == b"w" and fields[1][3:4] == b"s":
            yield os.fsdecode(fields[5].replace(b"\\012", b"\n"))


def _open_in(pid: int) -> Iterator[str]:
    for descriptor in _listing(_PROC / str(pid) / "fd"):
        with contextlib.suppress(OSError):
            path = str(descriptor.readlink())
            info = _read(_PROC / str(pid) / "fdinfo" / descriptor.name)
            if path.startswith("/") and _is_writable(info):
                yield path


def _is_writable(fdinfo: bytes) -> bool:
    """Return whether a descriptor is writable, by its fdinfo (proc(5))."""
    for line in fdinfo.splitlines():
        if line.startswith(b"flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _children_from_kernel(parent: int) -> list[int]:
    """Read /proc/PID/task/*/children, which needs CONFIG_PROC_CHILDREN."""
    children = []
    for thread in _listing(_PROC / str(parent) / "task"):
        children += [int(pid) for pid in _read(thread / "children").split()]
    return children


def _children_from_table() -> Callable[[int], list[int]]:
    """List all processes once; return a function that looks up children."""
    table: dict[int, list[int]] = {}
    for pid, parent in _parents():
        table.setdefault(parent, []).append(pid)
    return lambda parent: table.get(parent, [])


def _parents(pids: list[int] | None = None) -> Iterator[tuple[int, int]]:
    if not _PROC.joinpath("self").exists():
        command = ["ps", "-axo", "pid=,ppid="]
        listing = subprocess.run(command, capture_output=True, check=True, text=True).stdout
        for line in listing.splitlines():
            pid, parent = line.split()
            yield int(pid), int(parent)
        return

    if pids is None:
        pids = _all_pids()
    for number in pids:
        # The second field, the program's name in parentheses, may contain spaces and parentheses.
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
