"""A task's deeds to files and its view of them, here and on nodes (tests/real/test_journey.py)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

Deed = tuple[str, str, Any]
Seen = dict[str, tuple[str, Any]]


def do(directory: Path, deed: Deed) -> None:
    """Carry out one deed; a deed that the file system does not allow has no effect."""
    what, at, other = deed
    place = directory / at
    if isinstance(other, int):
        other = bytes(other)

    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if what == "write":
            place.write_bytes(other)
        elif what == "append":
            with place.open("ab") as file:
                file.write(other)
        elif what == "replace":
            beside = directory / "unfinished"
            beside.write_bytes(other)
            beside.replace(place)
        elif what == "rename":
            place.rename(directory / other)
        elif what == "link":
            place.symlink_to(os.path.relpath(directory / other, place.parent))
        elif what == "hard link":
            os.link(directory / other, place, follow_symlinks=False)
        elif what == "make directory":
            place.mkdir(exist_ok=True)
        elif what == "make executable":
            place.chmod(0o755)
        elif place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink()
    except OSError:
        (directory / "unfinished").unlink(missing_ok=True)


def seen(directory: Path, *, below: list[str] | None = None) -> Seen:
    """Return the entries of a directory; with `below`, only those there or deeper.

    No link is followed.
    """
    found: Seen = {}
    for entry in sorted(directory.rglob("*")):
        name = str(entry.relative_to(directory))
        if below is not None and not any(
            name == one or name.startswith(f"{one}/") for one in below
        ):
            continue

        if entry.is_symlink():
            found[name] = ("link", os.readlink(entry))
        elif entry.is_dir():
            found[name] = ("directory", None)
        else:
            found[name] = ("file", (entry.read_bytes(), bool(entry.stat().st_mode & 0o100)))

    return found
