"""Reads a text file that grows or is rewritten, in pieces of whole lines."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

# Bytes of one reading, because a file may be large when it is first read.
MOST_AT_ONCE = 4 * 1024 * 1024
_BLOCK = 1024 * 1024
# If any of this many bytes before the last reading's end has changed, the file was rewritten.
_COMPARED = 64


class GrowingFile:
    """A growing file, and the offset where its last reading ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0  # lines
        self._end = 0  # the offset where the reading ended
        self._last = b""  # the bytes before that offset
        self._is_inside = False  # whether the offset is inside a line that is too long
        # The file's first line, which in a table names the columns.
        self.first = b""
        # Whether the last reading ended before the end of the file.
        self.has_more = False

    def new(self) -> list[bytes]:
        """Return the whole lines since the last reading.

        Reads at most MOST_AT_ONCE bytes. Lines longer than that are left out.
        """
        with self._path.open("rb") as file:
            self._find_place(file)
            block = file.read(MOST_AT_ONCE)

        self.has_more = len(block) == MOST_AT_ONCE
        end = block.rfind(b"\n") + 1
        lines = block[:end].split(b"\n")[:-1]
        if self._is_inside:
            lines = lines[1:]

        # A full block without a newline is the beginning of a line that is too long.
        self._is_inside = not end and (self.has_more or self._is_inside)
        taken = block if self._is_inside else block[:end]
        self._end += len(taken)
        self._last = (self._last + taken[-_COMPARED:])[-_COMPARED:]
        self._read += block.count(b"\n")
        return lines

    def pass_over(self) -> None:
        """Skip all whole lines that are in the file now."""
        while self.new() or self.has_more:
            pass

    def _find_place(self, file: BinaryIO) -> None:
        """Seek to the end of the last reading.

        In a rewritten file, skip as many lines as were read before; if the file
        has fewer lines, seek to its beginning. Stable-Baselines3 rewrites its
        whole table when it adds a column.
        """
        first = file.readline(MOST_AT_ONCE)
        file.seek(self._end - len(self._last))
        last = file.read(len(self._last))
        if self._end and (first != self.first or last != self._last):
            end = _end_of(file, self._read)
            if end is None:
                self._read = 0
                end = 0
            self._end = end
            self._last = b""
            self._is_inside = False

        self.first = first
        file.seek(self._end)


def _end_of(file: BinaryIO, lines: int) -> int | None:
    """Return the offset after `lines` lines; None if the file has fewer."""
    file.seek(0)
    for block in iter(lambda: file.read(_BLOCK), b""):
        count = block.count(b"\n")
        if count < lines:
            lines -= count
            continue
        end = 0
        for _ in range(lines):
            end = block.index(b"\n", end) + 1
        return file.tell() - len(block) + end
    return None
