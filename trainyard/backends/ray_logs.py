"""The log files of a cluster's nodes, as Ray serves them, and what is added to them.

They are asked for again and again: a stream that is left open on a quiet file wears Ray's dashboard out.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.backends.answering import ANSWER_SECONDS
from trainyard.backends.contract import LogLine
from trainyard.seams.ray_api import FileMissingError, RayApi
from trainyard.seams.ray_types import Node

FIRST_LINES = 20
TAIL_LINES = 500
LOG_FILES = ("raylet.out", "raylet.err", "gcs_server.out", "gcs_server.err", "dashboard.log")


class Follower:
    """Remembers what was shown of each file."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], list[str]] = {}

    def fresh(self, address: str, token: str | None) -> Iterator[LogLine]:
        """Return what was added since the last time; at first, the last few lines of every file."""
        with RayApi(address, token, answer_seconds=ANSWER_SECONDS) as ray:
            for node, name in [(node, name) for node in ray.nodes() if node.alive for name in LOG_FILES]:
                key = (node.node_id, name)
                now = _tail(ray, node, name)
                fresh = added(self._before[key], now) if key in self._before else now[-FIRST_LINES:]
                self._before[key] = now
                yield from (LogLine(node.name, name, line) for line in fresh)


def added(before: list[str], now: list[str]) -> list[str]:
    """Return what was added, given the last lines of a file then and now: as little as both can mean."""
    for start in range(len(before)):
        known = before[start:]
        if now[: len(known)] == known:
            return now[len(known) :]
    return now


def _tail(ray: RayApi, node: Node, name: str) -> list[str]:
    try:
        with ray.file(node.node_id, name, last_lines=TAIL_LINES, silence=ANSWER_SECONDS) as chunks:
            return b"".join(chunks).decode(errors="replace").splitlines()
    except FileMissingError:  # not every node has every file
        return []
