"""Why a node ended by itself: the last lines of the daemon that did, or of `ray start`."""

from __future__ import annotations

import re
from pathlib import Path

from trainyard.backends.local.naming import ClusterFiles
from trainyard.backends.machine import ended
from trainyard.errors import NotReadyError, OutsideError, TrainyardError

# Begin lines that the keeper prints (seams/keeper.py).
DIED = "keeper: ended while the node was starting: "
GAVE_UP = "keeper: this machine is too busy for Ray's own time limits"
TAIL_LINES = 6
# "/path/gcs_server(+0x3609c4) [0x55c3d16d29c4] ray::gcs::GcsServer::GetStorageType()"
_STACK_FRAME = re.compile(r"\[0x[0-9a-f]+\]|\*\*\* StackTrace")


def end_reason(files: ClusterFiles, name: str) -> TrainyardError:
    """Return why a node ended by itself: NotReadyError when the machine was only too busy, else OutsideError."""
    path, lines = log_tail(files, name)
    if lines and lines[-1].startswith(GAVE_UP):
        return NotReadyError(
            f"{name} did not start in several tries: this machine is too busy for Ray's own time limits",
            where=str(path),
            hint="Repeat the same command when it is less busy (`uptime`), or want fewer nodes.",
        )
    return OutsideError(
        ended(name, lines),
        where=str(path),
        hint="Repeat the same command once the cause is gone: it replaces this node.",
    )


def log_tail(files: ClusterFiles, name: str) -> tuple[Path, list[str]]:
    """Return the last lines of what a node printed, and where they stand."""
    started = _lines(files.node_log(name))
    if started and started[-1].startswith(GAVE_UP):
        return files.node_log(name), started[-1:]
    died = [line.removeprefix(DIED) for line in started if line.startswith(DIED)][-1:]
    daemons = died or (["gcs_server", "raylet"] if any("Ray runtime started" in line for line in started) else [])
    for path in (files.ray_logs(name) / f"{daemon}{ending}" for daemon in daemons for ending in (".err", ".out")):
        if lines := _lines(path):
            return path, lines[-TAIL_LINES:]
    return files.node_log(name), started[-TAIL_LINES:]


def _lines(path: Path) -> list[str]:
    """Return the lines of a log that say something: not the frames of a C++ stack, which follow the reason."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip() and not _STACK_FRAME.search(line)]
