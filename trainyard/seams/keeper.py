"""The keeper, a process that owns and ends a local Ray node's processes.

`ray start` leaves daemons behind that no process owns. The keeper adopts them
(as their "subreaper", prctl(2)), so that one recorded process represents the
node. It ends all of them at SIGTERM, or when the node's raylet or GCS ends. If
the keeper itself is killed, its processes are still found by their session.

Usage: keeper.py RECORD LOG COMMAND... COMMAND is `ray start`. The keeper waits
until the file RECORD names its pid, so that no node runs without a record. LOG
is the file with the output of the keeper and of COMMAND. The working directory
is the node's temporary directory.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

# This file is run by its path, so sys.path begins with its directory, not the package's parent.
sys.path.pop(0)
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import psutil

from trainyard.seams import processes

PR_SET_CHILD_SUBREAPER = 36
# A node is dead without its raylet, and a cluster without its GCS.
VITAL = frozenset({"raylet", "gcs_server"})
# Readers of the log look for these texts.
DIED = "keeper: ended while the node was starting: "
GAVE_UP = "keeper: this machine is too busy for Ray's own time limits"
TRIES = 3
# A machine with a higher load per CPU than this counts as busy.
BUSY = 2
# Ray's messages for time limits that have no setting: 15 s for its agents to start
# (node_manager.cc), 30 s for the raylet (node.py). A load of 10 on 2 cores exceeded both, and the
# next try started the node. The third message comes from a worker whose head was restarted.
TOO_BUSY = (
    "Timed out waiting for file",
    "The current node timed out during startup",
    "WrongClusterID",
)
RAYLET_LOG = Path("session_latest/logs/raylet.out")


class _AskedToEndError(Exception):
    """The keeper received SIGTERM."""


def main(record: Path, log: Path, command: list[str]) -> int:
    """Start the node and stay until it ends; return the exit code."""
    _adopt_orphans()
    signal.signal(signal.SIGTERM, _ask)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    try:
        if not _named_in(record, seconds=10.0):
            return 1
        code = _start(command, log)
        if code == 0:
            _stay_while_alive()
    except _AskedToEndError:
        code = 0

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _end_everything()
    return code


def _start(command: list[str], log: Path) -> int:
    """Return the exit code of `ray start`, repeated on a too busy machine."""
    for _ in range(TRIES):
        size = log.stat().st_size
        code = _wait_for(subprocess.Popen(command, stdin=subprocess.DEVNULL).pid)
        if code == 0 or not _was_too_busy(log, size):
            return code
        _end_everything()

    load = os.getloadavg()[0]
    cpus = os.cpu_count() or 1
    # Readers take the log's end as the cause: this line, or else the node's own output.
    if load > BUSY * cpus:
        print(f"{GAVE_UP}; tried {TRIES} times; load {load:.1f} on {cpus} CPUs", flush=True)
    return code


def _was_too_busy(log: Path, size: int) -> bool:
    output = log.read_bytes()[size:]
    if RAYLET_LOG.exists():
        output += RAYLET_LOG.read_bytes()
    return any(text.encode() in output for text in TOO_BUSY)


def _end_everything() -> None:
    # gcs_server may ignore SIGTERM for many seconds, and nothing on the node is worth the wait.
    processes.end(_mine, grace=1.0, deadline=5.0)
    _reap()


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _ask(signum: int, frame: object) -> None:
    # A second SIGTERM must not interrupt the end of the processes.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _AskedToEndError


def _named_in(record: Path, *, seconds: float) -> bool:
    """Wait until the record names this process; False after `seconds`.

    The command that writes the record may have been killed.
    """
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        try:
            if json.loads(record.read_text())["process"]["pid"] == os.getpid():
                return True
        except (OSError, ValueError, KeyError):
            pass  # not written yet: read again in a moment
        time.sleep(0.02)
    return False


def _wait_for(pid: int) -> int:
    """Return the exit code of `ray start`, or 1 once a daemon has died.

    `ray start` itself would wait 45 s for a GCS that is dead.
    """
    launcher = psutil.Process(pid)
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        for child in launcher.children():
            if child.name() in VITAL and child.status() == psutil.STATUS_ZOMBIE:
                print(f"{DIED}{child.name()}", flush=True)
                return 1
        time.sleep(0.2)


def _stay_while_alive() -> None:
    vital = [process for process in _mine() if psutil.Process(process.pid).name() in VITAL]
    while vital and all(map(processes.alive, vital)):
        _reap()
        time.sleep(0.25)


def _mine() -> frozenset[processes.ProcessId]:
    me = processes.identify(os.getpid())
    return processes.members([me] if me else [])


def _reap() -> None:
    """Collect the children that ended, so that they do not stay as zombies."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
