"""A Ray job's log, which Ray's dashboard shows: lines with tasks' names."""

from __future__ import annotations

import contextlib
import sys
from typing import IO

# Characters. Ray never truncates this log on the head's disk. The event stream has all output.
LIMIT = 16 * 1024 * 1024
# Characters; a longer line is written in parts.
_LONGEST = 16 * 1024


class JobLog:
    """Writes lines with their tasks' names, at most LIMIT characters in all."""

    def __init__(self, run: str, *, to: IO[str] | None = None) -> None:
        self._run = run
        self._left = LIMIT
        self._to = to or sys.stdout
        # By task: the beginning of a line that has not ended.
        self._begun: dict[str, str] = {}

    def printed(self, task: str, text: str) -> None:
        """Write the lines that `text` completes; keep an unfinished line."""
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
        """Write the unfinished last line of a task's attempt, if any."""
        begun = self._begun.pop(task, "")
        if begun and self._left > 0:
            self._lines(task, [begun])

    def _lines(self, task: str, lines: list[str]) -> None:
        text = ""
        for line in lines:
            # A progress bar rewrites its line after each "\r": only the last form is written.
            last_form = line.rstrip("\r").rpartition("\r")[2]
            text += f"[{task}] {last_form}\n"
        if not text:
            return
        self._left -= len(text)
        self._write(text)

        if self._left <= 0:
            self._write(
                "tasks have printed more than this log holds; all output: trainyard train.logs "
                f"{self._run}\n"
            )

    def _write(self, text: str) -> None:
        # On a full disk, this log loses lines, but no task fails.
        with contextlib.suppress(OSError):
            self._to.write(text.encode("utf-8", "replace").decode())
            self._to.flush()
