"""A task's outputs where they are unpacked: archives applied in order, and their size."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from trainyard_runner.wire import tree, unpack
from trainyard_runner.wire.archive import Entries, LeftOut

_GIB = 1024**3


def apply(pieces: Iterable[bytes], directory: Path, *, removed: Iterable[str]) -> list[LeftOut]:
    """Bring a directory from one archive to the next; return what could not be written."""
    top = directory.resolve()
    for name in removed:
        path = top / name
        # A worker sends the names: none leads upwards, or through a link.
        is_inside = not {"", ".", ".."} & set(name.split("/"))
        if is_inside and path.parent.resolve() == path.parent:
            with contextlib.suppress(OSError):  # it may be gone already
                tree.remove(str(path))
    return unpack.unpack(pieces, directory)


def data_bytes(entries: Entries) -> int:
    return sum(entry.data_bytes for entry in entries.values())


def sized(count: int) -> str:
    """Return bytes in the larger of two units that leaves a digit before the point."""
    if count >= 1000 * _GIB:
        return f"{count / _GIB:.0f} GiB"
    if count >= _GIB:
        return f"{count / _GIB:.3g} GiB"
    return f"{count / 1024**2:.3g} MiB"
