"""A task's outputs where they are unpacked: archives applied in order, and their size."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from trainyard_runner.wire import tree, unpack
from trainyard_runner.wire.archive import Entries, LeftOut

_GIB = 1024**3


def apply(pieces: Iterable[bytes], directory: Path, *, removed: Iterable[str]) -> list[LeftOut]:
    """Apply the next archive to a directory; return the entries that could not be written."""
    with tree.Cursor(str(directory)) as cursor:
        for name in removed:
            parent, _, last = name.rpartition("/")
            if last and not {"", ".", ".."} & set(name.split("/")):
                with contextlib.suppress(OSError):  # it may be gone already
                    tree.remove(last, dir_fd=cursor.to(parent))
    return unpack.unpack(pieces, directory)


def data_bytes(entries: Entries) -> int:
    return sum(entry.data_bytes for entry in entries.values())


def sized(count: int) -> str:
    """Return bytes in the larger of two units that leaves a digit before the point."""
    if count >= _GIB:
        return f"{count / _GIB:.3g} GiB"
    return f"{count / 1024**2:.3g} MiB"
