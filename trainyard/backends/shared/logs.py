"""The log files of a cluster's nodes, as Ray serves them, and their new lines.

The files are polled, not streamed: a stream that stays open on a quiet file
exhausts Ray's dashboard.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass

from trainyard.backends.contract import LogLine
from trainyard.backends.shared.ray_nodes import ANSWER_SECONDS
from trainyard.seams.ray_api import FileMissingError, RayApi
from trainyard.seams.ray_types import Node

POLL_SECONDS = 1.0
FIRST_LINES = 20
TAIL_LINES = 500
NODE_FILES = ("raylet.out", "raylet.err")
HEAD_FILES = (*NODE_FILES, "gcs_server.out", "gcs_server.err", "dashboard.log")
# The dashboard logs each poll of its own log. These lines are hidden.
ACCESS = " web_log.py:"


@dataclass(frozen=True)
class LogFile:
    """The last lines of a node's file.

    A later node of the same name has another `key`.
    """

    key: Hashable
    node: str
    name: str
    lines: list[str]


def followed(
    read: Callable[[], Iterable[LogFile]], goes_on: Callable[[], bool], *, first: int = FIRST_LINES
) -> Iterator[LogLine]:
    """Yield each file's last `first` lines, then new ones while `goes_on()`."""
    known: dict[Hashable, list[str]] = {}
    while True:
        for file in read():
            fresh = file.lines[-first:]
            if file.key in known:
                fresh = added(known[file.key], file.lines)
            known[file.key] = file.lines
            for line in fresh:
                yield LogLine(file.node, file.name, line)

        if not goes_on():
            return
        time.sleep(POLL_SECONDS)


def ray_files(address: str, token: str | None, only: str) -> Iterator[LogFile]:
    """Ask Ray for the last lines of its living nodes' log files.

    `only` names one node; "" means all. Raises OutsideError if Ray does not
    answer.
    """
    with RayApi(address, token, answer_seconds=ANSWER_SECONDS) as ray:
        for node in ray.nodes():
            if not node.alive or only not in ("", node.name):
                continue
            names: tuple[str, ...] = NODE_FILES
            if node.is_head:
                names = HEAD_FILES
            for name in names:
                yield LogFile((node.node_id, name), node.name, name, _tail(ray, node, name))


def added(before: list[str], now: list[str]) -> list[str]:
    """Return the lines that a file gained between two reads of its end.

    If several answers are possible, returns the fewest lines.
    """
    for start in range(len(before)):
        known = before[start:]
        if now[: len(known)] == known:
            return now[len(known) :]
    return now


def _tail(ray: RayApi, node: Node, name: str) -> list[str]:
    try:
        with ray.file(node.node_id, name, last_lines=TAIL_LINES, silence=ANSWER_SECONDS) as chunks:
            lines = b"".join(chunks).decode(errors="replace").splitlines()
            return [line for line in lines if ACCESS not in line]
    except FileMissingError:
        # Not every node has every file.
        return []
