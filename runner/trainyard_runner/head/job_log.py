"""The log of a run's Ray job, which Ray's dashboard shows: tasks' lines, with their names."""

from __future__ import annotations

import contextlib
import sys
from typing import IO

# Ray keeps this log on the head's disk and does not roll it. The event stream has all of it.
LIMIT = 16 * 1024 * 1024
# A line that never ends is written in parts.
_LONGEST = 16 * 1024


class JobLog:
    """Writes lines of tasks, up to `limit` characters of them."""

    def __init__(self, run: str, *, limit: int = LIMIT, to: IO[str] | None = None) -> None:
        self._run = run
        self._left = limit
        self._to = to or sys.stdout
        # By task: the beginning of a line that has not ended.
        self._begun: dict[str, str] = {}

    def printed(self, task: str, text: str) -> None:
        """Write the lines that `text` completes; keep the rest."""
        if self._left <= 0:
            return
        *lines, begun = (self._begun.pop(task, "") + text).split("\n")
        if len(begun) > _LONGEST:
            lines.append(begun)
            begun = ""
        if begun:
            self._begun[task] = begun
        self._lines(task, lines)

    def ended(self, task: str) -> None:
        """Write an attempt's last line, if that did not end."""
        begun = self._begun.pop(task, "")
        if begun and self._left > 0:
            self._lines(task, [begun])

    def _lines(self, task: str, lines: list[str]) -> None:
        text = ""
        for line in lines:
            # A progress bar draws its line again and again: the last form stays.
            last_form = line.rstrip("\r").rpartition("\r")[2]
            text += f"[{task}] {last_form}\n"
        if not text:
            return
        self._left -= len(text)
        self._write(text)

        if self._left <= 0:
            self._write(
                "tasks have printed more than this log holds; all of it: trainyard train.logs "
                f"{self._run}\n"
            )

    def _write(self, text: str) -> None:
        # A full disk costs this log its lines, and no task anything.
        with contextlib.suppress(OSError):
            self._to.write(text.encode("utf-8", "replace").decode())
            self._to.flush()
