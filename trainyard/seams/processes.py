"""Processes of this machine: start one that outlives us, find it again, end everything it started.

A process is known by its pid and its start time, since pids are given out again. What a leader
started is found three ways, since each alone has a hole: by session (Ray's own processes stay in
it), by a marker in the environment (a process that renames itself loses that one from /proc), and
as descendants of either (tasks open new sessions).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import psutil

from trainyard.seams import addresses

MARKER = "TRAINYARD_NODE"
# Below the ports that systems give to outgoing connections (Linux 32768, macOS 49152), above the
# well-known ones.
OWN_PORTS = range(20_000, 30_000)


@dataclass(frozen=True)
class ProcessId:
    """A process: its pid, and when it started in words of this system."""

    pid: int
    started: str


def identify(pid: int) -> ProcessId | None:
    """Return the identity of a running process; None if there is none, or only its exit status is
    left.
    """
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return ProcessId(pid, _start_time(process))
    except (psutil.Error, OSError):
        return None


def command(process: ProcessId) -> list[str]:
    """Return the words by which a process was started; none where it has ended."""
    try:
        if alive(process):
            return psutil.Process(process.pid).cmdline()
        return []
    except psutil.Error:
        return []


def alive(process: ProcessId) -> bool:
    return identify(process.pid) == process


def start(
    command: Sequence[str], *, env: Mapping[str, str], log: Path, directory: Path
) -> ProcessId:
    """Start a process in a session of its own, its output in a log file; it outlives us."""
    with open(log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as output:
        child = subprocess.Popen(
            list(command),
            env=dict(env),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    started = ProcessId(child.pid, _start_time(psutil.Process(child.pid)))
    # Popen would warn that its child still runs, which is the purpose.
    child.returncode = 0
    return started


def members(leaders: Iterable[ProcessId], *, marker: str | None = None) -> frozenset[ProcessId]:
    """Return every running process of these leaders, them too, and all whose marker starts like
    this one.
    """
    sessions = {leader.pid for leader in leaders if _session_is_ours(leader)}
    parents: dict[int, int] = {}
    ours: set[int] = set()

    for process in psutil.process_iter():
        try:
            parents[process.pid] = process.ppid()
            if os.getsid(process.pid) in sessions or (
                marker and process.environ().get(MARKER, "").startswith(marker)
            ):
                ours.add(process.pid)
        except (psutil.Error, OSError):  # gone meanwhile, or somebody else's
            continue

    ours |= {pid for pid in parents if _descends(pid, parents, ours)}
    ours.discard(os.getpid())
    return frozenset(member for pid in ours if (member := identify(pid)))


def end(
    find: Callable[[], frozenset[ProcessId]], *, grace: float, deadline: float
) -> frozenset[ProcessId]:
    """End what `find` finds: SIGTERM, SIGKILL after `grace` seconds; return what is left after
    `deadline` more.
    """
    _signal(find(), signal.SIGTERM)
    if not _gone(find, grace):
        give_up = time.monotonic() + deadline
        while time.monotonic() < give_up:
            _signal(find(), signal.SIGKILL)
            if _gone(find, 0.5):
                break
    return find()


def terminate(process: ProcessId) -> None:
    _signal(frozenset({process}), signal.SIGTERM)


def started_at(process: ProcessId) -> float | None:
    """Return when a process was started, in Unix seconds, to a second or so; None if it is gone."""
    try:
        if alive(process):
            return psutil.Process(process.pid).create_time()
        return None
    except psutil.Error:
        return None


def free_ports(count: int) -> tuple[int, ...]:
    """Return TCP ports of the loopback address that nobody uses now, and that no outgoing
    connection is given.
    """
    ports = random.SystemRandom().sample(OWN_PORTS, len(OWN_PORTS))
    return tuple(islice((port for port in ports if addresses.is_free("127.0.0.1", port)), count))


def _start_time(process: psutil.Process) -> str:
    """Return the start time in clock ticks since this boot: the wall clock may be set, this
    cannot.
    """
    if sys.platform != "linux":
        return f"{process.create_time():.2f}"
    # Field 22 of /proc/PID/stat (proc_pid_stat(5)), counted after the command's name, which may
    # hold spaces.
    fields = (
        Path(f"/proc/{process.pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    )
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot[:8]}:{fields[19]}"


def _session_is_ours(leader: ProcessId) -> bool:
    """Say that the leader's pid was not given to somebody else; while its session has members, it
    cannot be.
    """
    now = identify(leader.pid)
    return now is None or now == leader


def _descends(pid: int, parents: Mapping[int, int], ancestors: set[int]) -> bool:
    visited: set[int] = set()
    while pid in parents and pid not in visited:
        if pid in ancestors:
            return True
        visited.add(pid)
        pid = parents[pid]
    return False


def _signal(processes: frozenset[ProcessId], number: signal.Signals) -> None:
    for process in filter(alive, processes):
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _gone(find: Callable[[], frozenset[ProcessId]], seconds: float) -> bool:
    """Say whether none is left within so long; to find them reads all of /proc, so those found are
    waited for first.
    """
    give_up = time.monotonic() + seconds
    while left := find():
        while time.monotonic() < give_up and any(map(alive, left)):
            time.sleep(0.05)
        if time.monotonic() >= give_up:
            return False
    return True
