"""Sends consistent snapshots of a task's checkpoint directory to the head.

A snapshot of the whole directory is sent once nothing in the directory has
changed for QUIET seconds and no process has a file there open for writing. The
snapshot is dropped if the directory changed during the copy. If no such moment
comes within RESTLESS seconds after a change, a snapshot takes only the files
that are closed and did not change during the copy. For the other files, the
head keeps the versions of the last snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from trainyard_runner.node.outputs import TICK_NS, Message, in_words
from trainyard_runner.wire import archive
from trainyard_runner.wire.archive import LeftOut
from trainyard_runner.wire.outputs import data_bytes, sized

QUIET = 0.3
RESTLESS = 2.0
_TRIES = 5
_OFTEN = 0.15


class CheckpointWatch:
    """Sends snapshots of one attempt's checkpoint directory.

    `writing` returns the full paths of the directory's files that are open for
    writing. A checkpoint of more than `limit` bytes is not sent. The restored
    checkpoint, which is the directory's initial content, is not sent either.
    """

    def __init__(
        self,
        directory: Path,
        writing: Callable[[], set[str]],
        *,
        limit: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._writing = writing
        self._clock = clock
        self._limit = limit
        self._said_too_large = False
        self._left_out: list[LeftOut] = []
        self._noted: list[LeftOut] = []
        self._taken = self._scan()
        self._kept = {entry.name for entry in self._taken.values() if entry.is_file}
        self._skipped: set[str] = set()
        self._seen = self._taken
        self._changed_at = -1.0
        self._dirty_at = -1.0
        self.due = 0.0  # when to call `look` next, in the clock's time

    def look(self) -> Iterator[Message]:
        """Send a snapshot if one is due."""
        began = self._clock()
        now = self._scan()
        # Scans take at most a tenth of the time.
        self.due = self._clock() + max(_OFTEN, 10 * (self._clock() - began))

        if now != self._seen:
            self._seen = now
            self._changed_at = began

        if now == self._taken and not self._skipped:
            self._dirty_at = -1.0
            return

        if self._dirty_at < 0:
            self._dirty_at = began

        quiet = began - self._changed_at >= QUIET
        restless = began - self._dirty_at >= RESTLESS
        if quiet or restless:
            yield from self._take_if_whole(now, quiet=quiet, restless=restless)

    def last(self) -> Iterator[Message]:
        """Send a last snapshot if the directory changed.

        All processes that write to the directory must have ended.
        """
        now = self._scan()
        yield from self._note_left_out()
        if now != self._taken or self._skipped:
            yield from self._send(now, skip=set(), strict=True)

    def _take_if_whole(
        self, now: archive.Entries, *, quiet: bool, restless: bool
    ) -> Iterator[Message]:
        open_files = self._writing()
        unsettled = {entry.name for entry in now.values() if entry.path in open_files}
        if now == self._taken and unsettled >= self._skipped:
            # Only the skipped files differ, and are still being written.
            self._dirty_at = -1.0
        elif quiet and not unsettled:
            yield from self._send(now, skip=set(), strict=True)
        elif restless:
            yield from self._take_file_by_file()

    def _take_file_by_file(self) -> Iterator[Message]:
        for _ in range(_TRIES):
            now = self._scan()
            open_files = self._writing()
            recent = time.time_ns() - TICK_NS
            unsettled = set()
            for entry in now.values():
                if entry.is_file and (entry.path in open_files or entry.mtime_ns > recent):
                    unsettled.add(entry.name)

            is_sent = yield from self._send(now, skip=unsettled, strict=False)
            if is_sent:
                return

    def _send(
        self, now: archive.Entries, *, skip: set[str], strict: bool
    ) -> Generator[Message, None, bool]:
        """Send a snapshot without `skip`; return whether the head keeps it.

        With `strict`, any change of the directory during the copy drops the
        snapshot; otherwise, only a change of a copied file does.
        """
        yield from self._note_left_out()
        if any(item.is_lost and item.name == "." for item in self._left_out):
            # The head keeps the former snapshot.
            return False

        size = data_bytes(now)
        if size > self._limit:
            yield from self._note_too_large(size)
            return False

        chosen = [entry for entry in now.values() if entry.name not in skip]
        try:
            for part in archive.parts(chosen):
                yield ("checkpoint-part", part)
            if strict:
                after, _ = archive.scan(str(self._directory))
                if after != now:
                    raise archive.ChangedError(str(self._directory))
        except archive.ChangedError:
            yield ("checkpoint-dropped", None)
            return False

        files = [entry for entry in chosen if entry.is_file]
        carry = sorted(skip & self._kept)
        self._taken = now
        self._skipped = skip
        self._dirty_at = -1.0
        self._kept = {entry.name for entry in files} | set(carry)
        size = sum(entry.size for entry in files)
        yield ("checkpoint", {"bytes": size, "files": len(files) + len(carry), "carry": carry})
        return True

    def _scan(self) -> archive.Entries:
        entries, self._left_out = archive.scan(str(self._directory))
        return entries

    def _note_left_out(self) -> Iterator[Message]:
        if self._left_out and self._left_out != self._noted:
            self._noted = self._left_out
            yield ("note", f"not in the checkpoint: {in_words(self._left_out)}")

    def _note_too_large(self, size: int) -> Iterator[Message]:
        if not self._said_too_large:
            self._said_too_large = True
            limit = f"the job's outputs_limit of {sized(self._limit)}"
            yield ("note", f"a checkpoint of {sized(size)} is not kept: it exceeds {limit}")
