"""Start local processes, find them again, end them with their descendants.

A process is identified by pid and start time, because the system reuses pids.
The processes of a leader are found in three ways, because each alone misses
some:

* By the leader's session. Ray's own processes stay in it, but tasks open new
  sessions.
* By a marker in the environment, which /proc no longer shows if a process
  renames itself.
* As descendants of the processes found so far.
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
# Above the well-known ports, and below those of outgoing connections (Linux from 32768, macOS from
# 49152).
OWN_PORTS = range(20_000, 30_000)


@dataclass(frozen=True)
class ProcessId:
    """A process: its pid, and its start time in this system's format."""

    pid: int
    started: str


def identify(pid: int) -> ProcessId | None:
    """Identify a running process; None if it does not exist or is a zombie."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return ProcessId(pid, _start_time(process))
    except (psutil.Error, OSError):
        return None


def command(process: ProcessId) -> list[str]:
    """Return a process's command line; [] if the process has ended."""
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
    """Start a process in its own session, so that it outlives this one."""
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
    # Without this, Popen would warn that the child outlives this process.
    child.returncode = 0
    return started


def members(leaders: Iterable[ProcessId], *, marker: str | None = None) -> frozenset[ProcessId]:
    """Return the processes of the leaders' sessions, and their descendants.

    `marker` adds all processes whose MARKER variable begins with it, and their
    descendants. This process is left out.
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
        except (psutil.Error, OSError):  # the process ended, or is another user's
            continue

    ours |= {pid for pid in parents if _descends(pid, parents, ours)}
    ours.discard(os.getpid())
    return frozenset(filter(None, map(identify, ours)))


def end(
    find: Callable[[], frozenset[ProcessId]], *, grace: float, deadline: float
) -> frozenset[ProcessId]:
    """End the processes of `find` by SIGTERM, after `grace` seconds by SIGKILL.

    Returns the processes that still run `deadline` seconds after the first
    SIGKILL.
    """
    _signal(find(), signal.SIGTERM)
    if _gone(find, grace):
        return find()

    give_up = time.monotonic() + deadline
    while time.monotonic() < give_up:
        _signal(find(), signal.SIGKILL)
        if _gone(find, 0.5):
            break
    return find()


def terminate(process: ProcessId) -> None:
    _signal(frozenset({process}), signal.SIGTERM)


def started_at(process: ProcessId) -> float | None:
    """Return a living process's start in Unix seconds."""
    if not alive(process):
        return None
    if sys.platform != "linux":
        return float(process.started)

    ticks = int(process.started.rpartition(":")[2])
    # psutil would add a boot time in whole seconds.
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return boot + ticks / os.sysconf("SC_CLK_TCK")


def free_ports(count: int) -> tuple[int, ...]:
    """Return free TCP ports of loopback that no outgoing connection uses."""
    ports = random.SystemRandom().sample(OWN_PORTS, len(OWN_PORTS))
    free = (port for port in ports if addresses.is_free("127.0.0.1", port))
    return tuple(islice(free, count))


def _start_time(process: psutil.Process) -> str:
    """Return the start time, on Linux one that no clock change affects."""
    if sys.platform != "linux":
        return f"{process.create_time():.2f}"
    # Field 22 of /proc/PID/stat (proc_pid_stat(5)); the command's name may hold spaces.
    stat = Path(f"/proc/{process.pid}/stat").read_text(errors="replace")
    fields = stat.rpartition(")")[2].split()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot[:8]}:{fields[19]}"


def _session_is_ours(leader: ProcessId) -> bool:
    """Say whether the leader's pid is unused or still the leader's.

    The system does not reuse the pid while the leader's session has members.
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
    """Wait until `find` returns no process; return False after `seconds`.

    `find` reads all of /proc, so it is called again only once the found
    processes have ended.
    """
    give_up = time.monotonic() + seconds
    while left := find():
        while time.monotonic() < give_up and any(map(alive, left)):
            time.sleep(0.05)
        if time.monotonic() >= give_up:
            return False
    return True
