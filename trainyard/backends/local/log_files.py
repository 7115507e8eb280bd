"""Read the log files of a local cluster's nodes, and what is added to them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from trainyard.backends.contract import LogLine
from trainyard.backends.local import nodes, records
from trainyard.backends.local.records import ClusterFiles

RAY_FILES = ("gcs_server.out", "gcs_server.err", "raylet.out", "raylet.err", "dashboard.log")
FIRST_LINES = 20


def lines(files: ClusterFiles, *, follow: bool) -> Iterator[LogLine]:
    """Return the last lines of every file; with `follow`, then each new line until no node is left."""
    offsets: dict[Path, int] = {}
    while True:
        recorded = records.read_nodes(files)
        for name in recorded:
            for path in _paths(files, name):
                yield from _fresh(name, path, offsets)
        if not follow or not nodes.running(recorded):
            return
        time.sleep(0.3)


def _paths(files: ClusterFiles, name: str) -> list[Path]:
    logs = files.node_temp(name) / "session_latest" / "logs"
    return [path for path in (files.node_log(name), *(logs / file for file in RAY_FILES)) if path.is_file()]


def _fresh(node: str, path: Path, offsets: dict[Path, int]) -> Iterator[LogLine]:
    """Return the whole lines that were added since the last time; at first, only the last few."""
    first = path not in offsets
    try:
        with path.open("rb") as file:
            file.seek(offsets.get(path, 0))
            text = file.read()
    except OSError:  # removed meanwhile, with its node
        return
    whole = text[: text.rfind(b"\n") + 1]
    offsets[path] = offsets.get(path, 0) + len(whole)
    found = whole.decode(errors="replace").splitlines()
    for line in found[-FIRST_LINES:] if first else found:
        yield LogLine(node, path.name, line)
