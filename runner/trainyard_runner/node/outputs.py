"""Sends archives of a task's changed outputs, while it runs and at its end.

The head keeps a task's archives in order; the next attempt and the operator's
machine unpack them one after another. A whole archive (of all outputs) replaces
the archives before it. A whole archive is sent when the changes exceed twice
the outputs' size, so that the head never keeps much more than three times that
size.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

from trainyard_runner.wire import archive
from trainyard_runner.wire.archive import Entries, Entry, LeftOut
from trainyard_runner.wire.outputs import data_bytes, sized

Message = tuple[str, Any]
# Two writes within one tick of the kernel's clock may leave the same mtime and ctime.
TICK_NS = 10_000_000
# With more removed names, a whole archive is sent instead.
_MOST_REMOVED = 1000
# Characters of removed names in one message.
_MOST_OF_NAMES = 1024 * 1024
_HEADERS = 1024  # bytes of an entry in an archive, in addition to its data
# Messages name at most this many files.
NAMED = 5


class OutputWatch:
    """Sends the changes of one attempt's outputs.

    `scan` returns the outputs' entries and the paths that are left out.
    `mapped` returns the full paths of files that programs have mapped for
    writing. Such a file is sent again at the end, because a write to it does
    not always change its mtime. `every`: seconds between looks. `limit`: the
    most bytes of outputs to send. `held`: bytes of the changes that the head
    has received since the last whole archive; None if the head has no archive
    yet.
    """

    def __init__(
        self,
        scan: Callable[[], tuple[Entries, list[LeftOut]]],
        mapped: Callable[[], set[str]] = set,
        *,
        every: float,
        limit: int,
        held: int | None,
        clock: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._scan = scan
        self._mapped = mapped
        self._were_mapped: set[str] = set()
        self._every = every
        self._limit = limit
        self._held = held
        self._clock = clock
        self._sent: Entries = {}
        if held is not None:
            self._sent, _ = scan()
        self._again: set[str] = set()  # names of files that may have changed since they were sent
        self.due = clock() + every  # when to call `look` next, in the clock's time
        # The paths that the last look did not send, each with the reason.
        self.left_out: list[LeftOut] = []

    def look(self) -> Iterator[Message]:
        """Send the changes since the last look, if any."""
        began = self._clock()
        began_ns = self._wall_ns()
        # Called before and after the scan: a file mapped only in between gets a new mtime.
        mapped = self._mapped()
        entries, left_out = self._scan()
        mapped |= self._mapped()
        self._were_mapped |= {entry.name for entry in entries.values() if entry.path in mapped}
        entries = within(entries, self._limit, left_out)
        now_ns = self._wall_ns()
        unsettled = set()
        for entry in entries.values():
            if began_ns - TICK_NS < entry.changed_ns <= now_ns:
                unsettled.add(entry.name)

        yield from self._send(entries, left_out, unsettled)
        self.left_out = left_out
        # Looks take at most a third of the time.
        self.due = self._clock() + max(self._every, 2 * (self._clock() - began))

    def held(self) -> dict[str, int]:
        """Count the files that the head has now, and their bytes."""
        files = [entry for entry in self._sent.values() if entry.is_file]
        return {"files": len(files), "bytes": sum(entry.size for entry in files)}

    def last(self) -> Iterator[Message]:
        """Send the last changes, and files that were ever mapped.

        All processes that write outputs must have ended.
        """
        self._again |= self._were_mapped
        yield from self.look()

    def _send(
        self, entries: Entries, left_out: list[LeftOut], unsettled: set[str]
    ) -> Iterator[Message]:
        lost = {item.name for item in left_out if item.is_lost}
        removed = []
        for name, entry in self._sent.items():
            if _is_gone(entry, entries.get(name), lost):
                removed.append(name)
        changed = []
        for name, entry in entries.items():
            if name in self._again or self._sent.get(name) != entry:
                changed.append(entry)
        if not changed and not removed:
            return

        is_whole = self._is_whole_due(entries, removed, lost)
        to_send = list(entries.values()) if is_whole else changed
        unread: list[LeftOut] = []
        size = 0
        for part in archive.parts(sorted(to_send, key=_order), unread):
            size += len(part)
            yield ("outputs-part", part)

        left_out += unread
        if not size and not removed:
            return

        bad = {item.name for item in unread}
        is_whole = self._held is None or (is_whole and not bad)
        self._held = 0 if is_whole else (self._held or 0) + size
        self._note_sent(entries, removed, bad)
        self._again = unsettled | bad

        # A whole archive needs no list of removed files.
        pieces: list[list[str]] = [[]]
        if not is_whole:
            # The archive's message has only the first piece. Removed names that the archive uses
            # again come first, because they must be removed before the archive is unpacked.
            pieces = _in_pieces(sorted(removed, key=lambda name: name not in entries))
        files = sum(1 for entry in changed if entry.is_file and entry.name not in bad)
        lines = [str(item) for item in left_out if item.is_lost][:NAMED]
        yield (
            "outputs",
            {"files": files, "whole": is_whole, "removed": pieces[0], "left_out": lines},
        )
        for names in pieces[1:]:
            yield ("outputs", {"files": 0, "whole": False, "removed": names, "left_out": []})

    def _is_whole_due(self, entries: Entries, removed: list[str], lost: set[str]) -> bool:
        """Return whether to send all outputs, to replace the head's archives.

        False while a path cannot be read: the head may have a former version of
        that path.
        """
        if self._held is None:
            return True
        if lost:
            return False
        whole_size = data_bytes(entries) + _HEADERS * len(entries)
        return self._held > 2 * whole_size or len(removed) > _MOST_REMOVED

    def _note_sent(self, entries: Entries, removed: list[str], bad: set[str]) -> None:
        for name in removed:
            del self._sent[name]
        for name, entry in entries.items():
            if name not in bad:
                self._sent[name] = entry


def within(entries: Entries, limit: int, left_out: list[LeftOut]) -> Entries:
    """Return the entries within `limit` bytes; append others to `left_out`.

    TensorBoard's event files are taken first, then the smallest files.
    """
    total = data_bytes(entries)
    if total <= limit:
        return entries

    reason = f"{sized(total)} of outputs are more than the job's outputs_limit of {sized(limit)}"
    kept = {}
    size = 0
    by_size = sorted(entries.values(), key=lambda e: (_is_no_curve(e), e.data_bytes, e.name))
    for entry in by_size:
        if size + entry.data_bytes > limit:
            left_out.append(LeftOut(entry.name, reason, is_lost=True))
        else:
            size += entry.data_bytes
            kept[entry.name] = entry

    return kept


def counted(names: list[str], *, by_directory: bool = False) -> dict[str, Any]:
    """Return the number of names, the first NAMED names, and how many more.

    With `by_directory`, more than NAMED names are grouped by their top
    directory.
    """
    counts = dict.fromkeys(names, 1)
    if by_directory and len(names) > NAMED:
        counts = _by_top(names)
    named = list(counts)[:NAMED]
    more = len(names) - sum(counts[name] for name in named)
    return {"count": len(names), "names": named, "more": more}


def _by_top(names: list[str]) -> dict[str, int]:
    below: dict[str, list[str]] = {}
    for name in names:
        below.setdefault(PurePosixPath(name).parts[0], []).append(name)

    counts = {}
    for top, inside in below.items():
        if len(inside) > 1:
            counts[f"{top}/ ({len(inside)} files)"] = len(inside)
        else:
            counts[inside[0]] = 1
    return counts


def in_words(left_out: list[LeftOut]) -> str:
    named = "; ".join(map(str, left_out[:NAMED]))
    if len(left_out) > NAMED:
        named += f"; and {len(left_out) - NAMED} more"
    return named


def _is_gone(before: Entry, now: Entry | None, lost: set[str]) -> bool:
    """Return whether an entry is gone, or has another type now.

    The head must then remove the entry. An unreadable entry, or an entry below
    an unreadable directory, is not gone.
    """
    if now is not None:
        return stat.S_IFMT(before.mode) != stat.S_IFMT(now.mode)
    if before.name in lost:
        return False
    return not any(str(parent) in lost for parent in PurePosixPath(before.name).parents)


def _in_pieces(names: list[str]) -> list[list[str]]:
    """Split names into at least one piece; each fits into one message."""
    pieces: list[list[str]] = [[]]
    size = 0
    for name in names:
        if size + len(name) > _MOST_OF_NAMES:
            pieces.append([])
            size = 0
        pieces[-1].append(name)
        size += len(name)
    return pieces


def _order(entry: Entry) -> tuple[bool, str]:
    return (_is_no_curve(entry), entry.name)


def _is_no_curve(entry: Entry) -> bool:
    """Sort TensorBoard's event files first: users look at them first."""
    return "tfevents" not in entry.name
