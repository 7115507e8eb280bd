"""Collects a command's output into chunks, of whole lines if possible."""

from __future__ import annotations

import os
import time
from typing import Any

CHUNK = 256 * 1024
_EVERY = 0.1
_TAIL_BYTES = 16 * 1024
_TAIL_LINES = 20


class OutputBuffer:
    """Collects output until it is due; keeps the last lines (`tail`)."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._since = 0.0
        self._waited = False
        self._tail = bytearray()

    def __bool__(self) -> bool:
        return bool(self._bytes)

    def read(self, descriptor: int, size: int) -> bool:
        """Read up to `size` bytes without waiting; return whether any came."""
        try:
            chunk = os.read(descriptor, size)
        except BlockingIOError:
            return False
        if chunk and not self._bytes:
            self._since = time.monotonic()
        self._bytes += chunk
        return bool(chunk)

    def add(self, line: str) -> None:
        """Add a line from the runner; first end the task's unfinished line."""
        is_open = not (self._bytes or self._tail or b"\n").endswith(b"\n")
        self._bytes += b"\n" * is_open + line.encode() + b"\n"

    def full(self) -> bool:
        return len(self._bytes) >= CHUNK

    def due(self) -> bool:
        if not self._bytes:
            return False
        return self.full() or time.monotonic() - self._since >= _EVERY

    def take(self, *, everything: bool = False) -> list[tuple[str, Any]]:
        """Take the chunks to send, as messages.

        The unfinished last line is held back once, unless the buffer is full or
        `everything` is set.
        """
        taken: list[tuple[str, Any]] = []
        while self._bytes:
            size = self._bytes.rfind(b"\n", 0, CHUNK) + 1
            if size == 0:
                if not (everything or self._waited or self.full()):
                    self._waited = True
                    self._since = time.monotonic()
                    break
                size = min(len(self._bytes), CHUNK)

            self._waited = False
            chunk = bytes(self._bytes[:size])
            del self._bytes[:size]
            self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
            taken.append(("output", chunk))

        return taken

    def tail(self) -> list[str]:
        lines = self._tail.decode("utf-8", "replace").splitlines()
        return lines[-_TAIL_LINES:]
