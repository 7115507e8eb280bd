"""Sends what a task leaves behind to the head, while it runs and when it ended: what changed, as
one archive at a time.

The head keeps a task's archives in order. A whole one replaces all before it, so that they never
take much more than three times what the task holds; the next attempt, and whoever follows the run,
apply them one after the other.
"""

from __future__ import annotations

import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

from trainyard_runner.wire import archive
from trainyard_runner.wire.archive import Entries, Entry, LeftOut
from trainyard_runner.wire.outputs import data_bytes, sized

Message = tuple[str, Any]
# A write within the kernel's clock tick of an earlier one does not show in the time of change.
TICK_NS = 10_000_000
_MOST_REMOVED = 1000
# So many characters of removed names are one message.
_MOST_OF_NAMES = 1024 * 1024
_HEADERS = 1024  # bytes of an entry in an archive, beside its data
NAMED = 5


class OutputWatch:
    """One attempt's outputs, looked at by `scan`; `mapped` says which files (full paths) programs
    have in memory.

    The time of a file does not always change when a program writes it there: such a file is sent
    once more at the end. `held` is how many bytes the head has of changes since the last whole
    archive, which together are what is found now; None: it has nothing yet.
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
        self._sent: Entries = {} if held is None else scan()[0]
        self._again: set[str] = set()  # sent, but perhaps not as it is now
        self._next = clock() + every
        self.left_out: list[LeftOut] = []

    def due(self) -> float:
        return self._next

    def look(self) -> Iterator[Message]:
        """Send what changed since the last time; nothing if nothing did."""
        began = self._clock()
        began_ns = self._wall_ns()
        # Before, and after: what is mapped only in between has another time than it had.
        mapped = self._mapped()
        entries, left_out = self._scan()
        mapped |= self._mapped()
        self._were_mapped |= {entry.name for entry in entries.values() if entry.path in mapped}
        entries = within(entries, self._limit, left_out)
        unsettled = {
            e.name for e in entries.values() if began_ns - TICK_NS < e.changed_ns <= self._wall_ns()
        }
        yield from self._send(entries, left_out, unsettled)
        self.left_out = left_out
        # What takes long is done less often: looking and sending is at most a third of the time.
        self._next = self._clock() + max(self._every, 2 * (self._clock() - began))

    def held(self) -> dict[str, int]:
        """Return how many files the head has of what was found last, and their bytes."""
        files = [entry for entry in self._sent.values() if entry.is_file]
        return {"files": len(files), "bytes": sum(entry.size for entry in files)}

    def last(self) -> Iterator[Message]:
        """Send what is new at the end; nobody writes any more."""
        self._again |= self._were_mapped
        yield from self.look()

    def _send(
        self, entries: Entries, left_out: list[LeftOut], unsettled: set[str]
    ) -> Iterator[Message]:
        lost = {item.name for item in left_out if item.is_lost}
        removed = [
            name for name, entry in self._sent.items() if _is_gone(entry, entries.get(name), lost)
        ]
        changed = [
            e for e in entries.values() if e.name in self._again or self._sent.get(e.name) != e
        ]
        if not changed and not removed:
            return

        whole = self._held is None or (self._is_much(entries, removed) and not lost)
        unread: list[LeftOut] = []
        size = 0

        for part in archive.parts(
            sorted(entries.values() if whole else changed, key=_order), unread
        ):
            size += len(part)
            yield ("outputs-part", part)

        left_out += unread
        if not size and not removed:
            return

        bad = {item.name for item in unread}
        whole = self._held is None or (whole and not bad)
        self._held = 0 if whole else (self._held or 0) + size
        gone = set(removed)
        kept = {name: entry for name, entry in self._sent.items() if name not in gone}
        self._sent = {**kept, **{name: entry for name, entry in entries.items() if name not in bad}}
        self._again = unsettled | bad
        files = sum(1 for entry in changed if entry.is_file and entry.name not in bad)
        lines = [str(item) for item in left_out if item.is_lost][:NAMED]

        # A whole archive replaces everything: nothing has to be removed before it.
        if whole:
            first, *others = [[]]
        else:
            first, *others = _in_pieces(sorted(removed, key=lambda name: name not in entries))

        yield ("outputs", {"files": files, "whole": whole, "removed": first, "left_out": lines})
        for names in others:
            yield ("outputs", {"files": 0, "whole": False, "removed": names, "left_out": []})

    def _is_much(self, entries: Entries, removed: list[str]) -> bool:
        """Tell whether what the head holds should be replaced, rather than added to."""
        return (self._held or 0) > 2 * (data_bytes(entries) + _HEADERS * len(entries)) or len(
            removed
        ) > _MOST_REMOVED


def within(entries: Entries, limit: int, left_out: list[LeftOut]) -> Entries:
    """Return what fits into the limit, the smallest files first; the rest is appended to
    `left_out`.
    """
    total = data_bytes(entries)
    if total <= limit:
        return entries

    reason = f"{sized(total)} of outputs are more than the job's outputs_limit of {sized(limit)}"
    kept = {}
    size = 0

    for entry in sorted(
        entries.values(), key=lambda entry: (_order(entry)[0], entry.data_bytes, entry.name)
    ):
        if size + entry.data_bytes > limit:
            left_out.append(LeftOut(entry.name, reason, is_lost=True))
        else:
            size += entry.data_bytes
            kept[entry.name] = entry

    return kept


def counted(names: list[str], *, by_directory: bool = False) -> dict[str, Any]:
    """Return how many there are, the first, and how many are not named.

    `by_directory`: of too many files to name, those in one directory at the top are named together.
    """
    some = dict.fromkeys(names, 1)
    if by_directory and len(names) > NAMED:
        tops = Counter(PurePosixPath(name).parts[0] for name in names)
        some = {}
        for top, count in tops.items():
            some[f"{top}/ ({count} files)" if count > 1 else _below(top, names)] = count
    shown = [*some][:NAMED]
    return {
        "count": len(names),
        "names": shown,
        "more": len(names) - sum(some[name] for name in shown),
    }


def _below(top: str, names: list[str]) -> str:
    return next(name for name in names if PurePosixPath(name).parts[0] == top)


def in_words(left_out: list[LeftOut]) -> str:
    named = "; ".join(map(str, left_out[:NAMED]))
    more = len(left_out) - NAMED
    return named + (f"; and {more} more" if more > 0 else "")


def _is_gone(before: Entry, now: Entry | None, lost: set[str]) -> bool:
    if now is not None:
        return stat.S_IFMT(before.mode) != stat.S_IFMT(now.mode)
    path = PurePosixPath(before.name)
    return not (before.name in lost or any(str(parent) in lost for parent in path.parents))


def _in_pieces(names: list[str]) -> list[list[str]]:
    """Return names in pieces that each fit into one message; at least one piece."""
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
    """Curves first: whoever looks at a run looks at them."""
    return ("tfevents" not in entry.name, entry.name)
