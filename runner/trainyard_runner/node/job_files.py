"""The job's files on a node: unpacked once, and copied for each attempt.

An attempt therefore never sees changes that another attempt or an earlier run
made to the files.
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
from typing import NamedTuple

from trainyard_runner.wire import archive, tree

_BYTECODE = "__pycache__"
# Bytes; files up to this size are copied by one read and one write.
_SMALL = 1024 * 1024


class Identity(NamedTuple):
    """The properties by which a write to a file is noticed."""

    mode: int
    inode: int
    size: int
    mtime_ns: int


class JobFiles:
    """A job's package from Ray, unpacked on this node below `home`."""

    def __init__(self, home: Path, name: str, fetch: Callable[[], bytes]) -> None:
        self._place = home / name.removesuffix(".zip")
        self._fetch = fetch

    def copy(self, target: Path) -> dict[str, Identity]:
        """Copy the files into `target`; return their identities by name.

        Skips files whose names `target` already has. Raises OSError, for
        example on a full disk.
        """
        source = self._unpacked()
        copied: dict[str, Identity] = {}
        directories = [""]
        while directories:
            inside = directories.pop()
            with os.scandir(source / inside) as items:
                for item in items:
                    name = inside + item.name
                    path = target / name
                    if item.is_dir(follow_symlinks=False):
                        if _is_made(path):
                            directories.append(f"{name}/")
                    elif not os.path.lexists(path):
                        copied[name] = _copy(item, path)

        return copied

    def _unpacked(self) -> Path:
        """Unpack the files unless they are intact; return their directory."""
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
    """Return the sorted names of files written outside declared outputs.

    These are new files and links, and copied files that changed. Python's
    bytecode is left out.
    """
    outputs = {PurePosixPath(output) for output in declared}
    entries, left_out = archive.scan(str(directory))
    # The task has made all links, pipes and devices: a job's package has none.
    names = [item.name for item in left_out]
    for entry in entries.values():
        mode = stat.S_IMODE(entry.mode)
        identity = Identity(mode, entry.inode, entry.size, entry.mtime_ns)
        if not stat.S_ISDIR(entry.mode) and copied.get(entry.name) != identity:
            names.append(entry.name)

    unexpected = []
    for name in names:
        path = PurePosixPath(name)
        if _BYTECODE not in path.parts and outputs.isdisjoint([path, *path.parents]):
            unexpected.append(name)
    return sorted(unexpected)


def _copy(item: os.DirEntry[str], path: Path) -> Identity:
    """Copy a file with its mode and mtime, faster than `shutil.copy2`."""
    found = item.stat(follow_symlinks=False)
    mode = stat.S_IMODE(found.st_mode)
    with Path(item.path).open("rb", buffering=0) as source, path.open("xb") as target:
        if found.st_size <= _SMALL:
            target.write(source.read())
            target.flush()
        else:
            _copy_content(source.fileno(), target.fileno(), found.st_size)
        os.fchmod(target.fileno(), mode)
        # The original's mtime: a write by the task makes it newer.
        os.utime(target.fileno(), ns=(found.st_mtime_ns, found.st_mtime_ns))
        inode = os.fstat(target.fileno()).st_ino

    return Identity(mode, inode, found.st_size, found.st_mtime_ns)


def _copy_content(source: int, target: int, size: int) -> None:
    """Copy a large file, in the kernel where possible."""
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


def _is_intact(place: Path) -> bool:
    """Return whether no file's ctime is later than the ctime of `sealed`.

    No program can set a ctime.
    """
    try:
        sealed = (place / "sealed").stat().st_ctime_ns
        return all(moment <= sealed for moment in _touched(place / "files"))
    except FileNotFoundError:
        return False


def _touched(directory: Path) -> Iterator[int]:
    """Yield the ctime of each directory and file, in ns."""
    yield directory.stat(follow_symlinks=False).st_ctime_ns
    directories = [str(directory)]
    while directories:
        with os.scandir(directories.pop()) as items:
            for item in items:
                yield item.stat(follow_symlinks=False).st_ctime_ns
                if item.is_dir(follow_symlinks=False):
                    directories.append(item.path)


def _is_made(path: Path) -> bool:
    """Make a missing directory; return False if a file or link is there."""
    try:
        path.mkdir()
    except FileExistsError:
        return path.is_dir() and not path.is_symlink()
    return True
