"""The job's files on a node: unpacked once, and copied for each attempt.

No attempt finds what another one, or an earlier run, did to them.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path, PurePosixPath

from trainyard_runner.wire import archive, tree
from trainyard_runner.wire.archive import Entry

# What Python writes beside each module that it imports.
_BYTECODE = "__pycache__"
_SMALL = 1024 * 1024  # bytes; read and written in one piece
# How a file is known again: mode, inode, size, and the time of its last change in ns.
Identity = tuple[int, int, int, int]


class JobFiles:
    """A job's package on this node, below `home`; `fetch` returns the zip that was sent."""

    def __init__(self, home: Path, name: str, fetch: Callable[[], bytes]) -> None:
        self._place = home / name.removesuffix(".zip")
        self._fetch = fetch

    def copy(self, target: Path) -> dict[str, Identity]:
        """Copy all files into `target`, around what is there; return how each copy is known again,
        by its name.

        Raises OSError where that is not possible; the disk may be full.
        """
        source = self._unpacked()
        copied: dict[str, Identity] = {}
        waiting = [""]
        while waiting:
            inside = waiting.pop()
            with os.scandir(source / inside) as items:
                for item in items:
                    name = inside + item.name
                    path = target / name
                    if item.is_dir(follow_symlinks=False):
                        if _is_made(path):
                            waiting.append(f"{name}/")
                    elif not os.path.lexists(path):
                        copied[name] = _copy(item, path)

        return copied

    def _unpacked(self) -> Path:
        """Return where the files are on this node; the first to ask fetches them, and who finds
        them changed.
        """
        if self._place.is_dir() and not _is_intact(self._place):
            self._remove()
        if not self._place.is_dir():
            self._unpack()
        return self._place / "files"

    def _unpack(self) -> None:
        self._place.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f"{self._place.name}.", dir=self._place.parent))
        try:
            self._unpack_into(part)
            part.rename(self._place)
        except OSError:
            # Another worker of this node may have been quicker.
            if not self._place.is_dir():
                raise
        finally:
            tree.remove(str(part))

    def _unpack_into(self, part: Path) -> None:
        (part / "files").mkdir()
        with zipfile.ZipFile(io.BytesIO(self._fetch())) as bundle:
            for member in bundle.infolist():
                path = bundle.extract(member, part / "files")
                mode = member.external_attr >> 16
                if mode & 0o777 and not member.is_dir():
                    Path(path).chmod(mode & 0o777)
        (part / "sealed").touch()

    def _remove(self) -> None:
        aside = tempfile.mkdtemp(prefix=f"{self._place.name}.", dir=self._place.parent)
        with contextlib.suppress(FileNotFoundError):  # another worker of this node was quicker
            self._place.rename(Path(aside, "changed"))
        tree.remove(aside)


def changed(
    directory: Path, copied: dict[str, Identity], *, declared: Collection[str]
) -> list[str]:
    """Return the names of files that a task wrote or changed outside its declared outputs, in
    order.
    """
    outputs = {PurePosixPath(output) for output in declared}
    found, left_out = archive.scan(str(directory))
    names = []
    for entry in found.values():
        if not stat.S_ISDIR(entry.mode) and _is_other(entry, copied):
            names.append(entry.name)
    # No link, pipe or the like was sent.
    for item in left_out:
        names.append(item.name)
    return sorted(name for name in names if not _is_expected(PurePosixPath(name), outputs))


def _is_other(entry: Entry, copied: dict[str, Identity]) -> bool:
    return copied.get(entry.name) != (
        stat.S_IMODE(entry.mode),
        entry.inode,
        entry.size,
        entry.mtime_ns,
    )


def _is_expected(path: PurePosixPath, outputs: Collection[PurePosixPath]) -> bool:
    return _BYTECODE in path.parts or not set(outputs).isdisjoint((path, *path.parents))


def _is_intact(place: Path) -> bool:
    """Tell whether nothing below a package was touched since it was unpacked: no program sets the
    time of that.
    """
    try:
        sealed = (place / "sealed").stat().st_ctime_ns
        return all(moment <= sealed for moment in _touched(place / "files"))
    except FileNotFoundError:
        return False


def _touched(directory: Path) -> Iterator[int]:
    """Yield when each directory and file below was written, renamed, or given another mode: in
    ns.
    """
    yield directory.stat(follow_symlinks=False).st_ctime_ns
    waiting = [str(directory)]
    while waiting:
        with os.scandir(waiting.pop()) as items:
            for item in items:
                yield item.stat(follow_symlinks=False).st_ctime_ns
                if item.is_dir(follow_symlinks=False):
                    waiting.append(item.path)


def _is_made(path: Path) -> bool:
    """Make a directory; return False where something else stands."""
    try:
        path.mkdir()
    except FileExistsError:
        return path.is_dir() and not path.is_symlink()
    return True


def _copy(item: os.DirEntry[str], path: Path) -> Identity:
    found = item.stat(follow_symlinks=False)
    mode = stat.S_IMODE(found.st_mode)
    with Path(item.path).open("rb", buffering=0) as source, path.open("xb") as target:
        if found.st_size <= _SMALL:
            target.write(source.read())
            target.flush()
        else:
            _copy_content(source.fileno(), target.fileno(), found.st_size)
        os.fchmod(target.fileno(), mode)
        # Older than all that the task writes.
        os.utime(target.fileno(), ns=(found.st_mtime_ns, found.st_mtime_ns))
        inode = os.fstat(target.fileno()).st_ino
    return mode, inode, found.st_size, found.st_mtime_ns


def _copy_content(source: int, target: int, size: int) -> None:
    """Copy a large file the cheapest way that its filesystem has: XFS and Btrfs share its blocks (a
    reflink).
    """
    done = 0
    if hasattr(os, "copy_file_range"):
        try:
            while done < size and (count := os.copy_file_range(source, target, size - done)):
                done += count
        except OSError:
            if done:
                raise
    if done < size:
        with os.fdopen(os.dup(source), "rb") as rest, os.fdopen(os.dup(target), "wb") as end:
            shutil.copyfileobj(rest, end, _SMALL)
