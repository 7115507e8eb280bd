"""A run's event stream: segments (files) with one JSON event on each line.

Segments are small, because a reader may have to read the newest one from its
beginning.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainyard_runner.wire import names
from trainyard_runner.wire.events import Continues, Event, TaskOutput

ROLL_AT = 8 * 1024 * 1024
# Bytes. Readers reject a file with a longer line. An event has at most 256 KiB of output, which may
# become six times as long in JSON.
LONGEST_LINE = 16 * 1024 * 1024
# In an event with a longer line, each text and list is cut to this many characters or items.
_CUT_TO = 1000
# Bytes of a file that is shrunk on a full disk, so that the ends of tasks can still be written.
RESERVE = 4 * 1024 * 1024


class EventStream:
    """Writes events in order, without delay, each atomically.

    Every event has `seq` (0, 1, 2, ... without a gap over all segments) and
    `time`. The last line of a full segment is the event "continues", which
    names the next segment.
    """

    def __init__(self, directory: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._clock = clock
        self._seq = 0
        self._number = 0
        self._size = 0
        directory.mkdir(parents=True, exist_ok=True)
        self._reserve = directory / ".reserve"
        self._reserve.write_bytes(bytes(RESERVE))
        self._file = (directory / names.segment(0)).open("wb", buffering=0)

    def write(self, event: Event) -> None:
        """Append one event.

        On a full disk, a task's output raises OSError at once. Any other event
        first uses up the reserve, and raises OSError only after that.
        """
        try:
            self._write(event)
        except OSError:
            if isinstance(event, TaskOutput):
                # Half of the reserve is left for other events.
                self._shrink_reserve(RESERVE // 2)
                raise
            self._shrink_reserve(0)
            self._write(event)

    def close(self) -> None:
        self._file.close()
        self._reserve.unlink(missing_ok=True)

    def _write(self, event: Event) -> None:
        if self._size >= ROLL_AT:
            self._roll()
        self._append(event)

    def _append(self, event: Event) -> None:
        line = event.line()
        line["seq"] = self._seq
        line["time"] = round(self._clock(), 4)
        # json.dumps escapes all characters except ASCII. UTF-8 could not encode lone surrogates,
        # which replace bytes of output that are not UTF-8.
        encoded = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        if len(encoded) > LONGEST_LINE:
            encoded = json.dumps(_cut(line), separators=(",", ":")).encode() + b"\n"

        try:
            written = 0
            while written < len(encoded):
                written += self._file.write(encoded[written:])
        except OSError:
            self._file.truncate(self._size)
            self._file.seek(self._size)
            raise

        self._seq += 1
        self._size += len(encoded)

    def _roll(self) -> None:
        following = names.segment(self._number + 1)
        # The file must exist before it is announced, or a follower would request a missing file.
        opened = (self._directory / following).open("wb", buffering=0)
        self._append(Continues(next=following))
        self._file.close()
        self._file = opened
        self._number = self._number + 1
        self._size = 0

    def _shrink_reserve(self, size: int) -> None:
        if self._reserve.stat().st_size > size:
            os.truncate(self._reserve, size)


def _cut(value: Any) -> Any:
    """Return a JSON value with long texts, lists and objects cut to _CUT_TO."""
    if isinstance(value, str):
        return value[:_CUT_TO]
    if isinstance(value, dict):
        return {name: _cut(item) for name, item in list(value.items())[:_CUT_TO]}
    if isinstance(value, list):
        return [_cut(item) for item in value[:_CUT_TO]]
    return value
