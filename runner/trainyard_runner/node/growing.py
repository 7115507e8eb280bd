"""The whole lines of a text file that grows, read piece by piece."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

# So many bytes are read at once: a file may be large before it is first read.
MOST_AT_ONCE = 4 * 1024 * 1024
_BLOCK = 1024 * 1024
_COMPARED = 64  # bytes by which a file that was written again is recognized


class GrowingFile:
    """One file, and how far it has been read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0  # lines
        self._end = 0  # where in the file the reading ended
        self._last = b""  # the bytes before that
        self._is_inside = False  # whether that was inside a line that is passed over
        # Its first line: of a table, the names of the columns.
        self.first = b""
        # Whether the last reading ended before the file did.
        self.has_more = False

    def new(self) -> list[bytes]:
        """Return the lines since the last time, at most MOST_AT_ONCE bytes."""
        with self._path.open("rb") as file:
            self._find_place(file)
            block = file.read(MOST_AT_ONCE)

        self.has_more = len(block) == MOST_AT_ONCE
        end = block.rfind(b"\n") + 1
        lines = block[:end].split(b"\n")[:-1]
        if self._is_inside:
            lines = lines[1:]

        # A line that is longer than all that is read at once is passed over.
        self._is_inside = not end and (self.has_more or self._is_inside)
        taken = block if self._is_inside else block[:end]
        self._end += len(taken)
        self._last = (self._last + taken[-_COMPARED:])[-_COMPARED:]
        self._read += block.count(b"\n")
        return lines

    def pass_over(self) -> None:
        """Go to the end of the file."""
        while self.new() or self.has_more:
            pass

    def _find_place(self, file: BinaryIO) -> None:
        """Seek to the end of the last reading; after a rewrite, skip as many lines as were read.

        Stable-Baselines3 writes its whole table again when there is one more column.
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
    """Return where so many lines of a file end; None if it has fewer."""
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
