"""Apply archives of a task's outputs, and measure outputs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from trainyard_runner.wire import tree, unpack
from trainyard_runner.wire.archive import Entries, LeftOut

_GIB = 1024**3


def apply(pieces: Iterable[bytes], directory: Path, *, removed: Iterable[str]) -> list[LeftOut]:
    """Apply the next archive to a task's outputs; return the paths left out.

    First deletes the `removed` paths, then unpacks the archive's `pieces` over
    the other files.
    """
    top = directory.resolve()
    for name in removed:
        path = top / name
        # The names come from a worker: none may lead upwards or through a link.
        is_inside = not {"", ".", ".."} & set(name.split("/"))
        if is_inside and path.parent.resolve() == path.parent:
            with contextlib.suppress(OSError):  # it may be gone already
                tree.remove(str(path))
    return unpack.unpack(pieces, directory)


def data_bytes(entries: Entries) -> int:
    return sum(entry.data_bytes for entry in entries.values())


def sized(count: int) -> str:
    """Return a number of bytes in words: GiB from 1 GiB on, else MiB."""
    if count >= 1000 * _GIB:
        return f"{count / _GIB:.0f} GiB"
    if count >= _GIB:
        return f"{count / _GIB:.3g} GiB"
    return f"{count / 1024**2:.3g} MiB"
