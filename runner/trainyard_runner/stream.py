"""A run's event stream: files of one JSON object a line, rolled while they are small enough to be read again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainyard_runner import names

ROLL_AT = 8 * 1024 * 1024


class EventStream:
    """Writes events in order; `flush` makes them visible to whoever follows.

    Every event has `seq` (0, 1, 2, ... without a gap over all segments) and `time`. The last line of a full segment is
    the event "continues", which names the next one.
    """

    def __init__(self, directory: Path, *, roll_at: int = ROLL_AT, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._roll_at = roll_at
        self._clock = clock
        self._seq = 0
        self._number = 0
        self._size = 0
        directory.mkdir(parents=True, exist_ok=True)
        self._file = (directory / names.segment(0)).open("wb")

    def write(self, event: str, **fields: Any) -> None:
        """Append one event."""
        if self._size >= self._roll_at:
            self._roll()
        self._append(event, fields)

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close the last segment."""
        self._file.close()

    def _append(self, event: str, fields: dict[str, Any]) -> None:
        line = {"seq": self._seq, "time": round(self._clock(), 4), "event": event, **fields}
        # ASCII only: lone surrogates, which stand for bytes that are not UTF-8, have no other spelling in a file.
        encoded = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        self._file.write(encoded)
        self._seq += 1
        self._size += len(encoded)

    def _roll(self) -> None:
        following = names.segment(self._number + 1)
        # The next segment exists before it is announced, so that a follower never asks for a missing file.
        opened = (self._directory / following).open("wb")
        self._append("continues", {"next": following})
        self._file.close()
        self._file, self._number, self._size = opened, self._number + 1, 0
