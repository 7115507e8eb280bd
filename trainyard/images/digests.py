"""Digests of large files, remembered: a packaged game has gigabytes, and an unchanged build must be quick.

A digest is kept under all that changes with a file's content: size, inode, times to the nanosecond (git's index relies
on the same). What is lost is computed again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from os import stat_result
from pathlib import Path

from trainyard import paths
from trainyard.images import context
from trainyard.images.context import Entry

# Below, reading a file again is as quick as looking it up.
LARGE = 16 * 1024 * 1024


def remembered(environ: Mapping[str, str]) -> Callable[[Entry], str]:
    """Return context.digest, with a memory in the user's cache directory."""
    directory = paths.cache_home(environ) / "digests"
    return lambda entry: _digest(entry, directory)


def _digest(entry: Entry, directory: Path) -> str:
    status = entry.source.lstat()
    if status.st_size < LARGE or entry.source.is_symlink():
        return context.digest(entry)
    kept = directory / _key(entry, status)
    with suppress(OSError):
        return kept.read_text()
    found = context.digest(entry)
    # A file that was written to while it was read has other times now: its digest is not kept under the old ones.
    if _key(entry, entry.source.lstat()) == kept.name:
        _keep(kept, found)
    return found


def _key(entry: Entry, status: stat_result) -> str:
    known = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, entry.mode)
    return hashlib.sha256(repr((str(entry.source.resolve()), known)).encode(errors="surrogateescape")).hexdigest()


def _keep(path: Path, digest: str) -> None:
    """Write it in one piece; a cache that cannot be written to is none."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(digest)
        part.replace(path)
