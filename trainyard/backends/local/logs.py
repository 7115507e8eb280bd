"""The log files of a local cluster's nodes, and what is added to them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from trainyard.backends import contract
from trainyard.backends.contract import LogLine, Tools
from trainyard.backends.local import record, snapshot
from trainyard.backends.local.naming import ClusterFiles
from trainyard.backends.logs import FIRST_LINES, HEAD_FILES
from trainyard.spec.cluster import ClusterSpec


def logs(spec: ClusterSpec, tools: Tools, *, follow: bool) -> Iterator[LogLine]:
    """Return the last lines of every file; with `follow`, then each new line until no node is left."""
    files = ClusterFiles(tools.state)
    if not record.read_nodes(files):
        raise contract.not_up(spec.name)
    return _lines(files, follow=follow)


def _lines(files: ClusterFiles, *, follow: bool) -> Iterator[LogLine]:
    offsets: dict[Path, int] = {}
    while True:
        recorded = record.read_nodes(files)
        for name in recorded:
            paths = (files.node_log(name), *(files.ray_logs(name) / file for file in HEAD_FILES))
            for path in paths:
                if path.is_file():
                    yield from _fresh(name, path, offsets)
        if not follow or not snapshot.running(recorded):
            return
        time.sleep(0.3)


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
    lines = whole.decode(errors="replace").splitlines()
    for line in lines[-FIRST_LINES:] if first else lines:
        yield LogLine(node, path.name, line)
