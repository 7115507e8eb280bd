"""Directories as tar archives in parts: read on a worker node, sent piece by piece, put together on the head.

Nothing is followed outside: a symbolic link is kept as a link if it stays inside the archive, and left out otherwise.
Sockets, pipes and devices are left out.
"""

from __future__ import annotations

import hashlib
import io
import os
import posixpath
import stat
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PART = 1024 * 1024
_BLOCK = 512


class ChangedError(Exception):
    """A file was not the same before and after it was read."""


@dataclass(frozen=True)
class Entry:
    """A file, directory or link as it was found."""

    name: str
    path: str
    mode: int
    size: int
    mtime_ns: int
    inode: int
    target: str | None = None

    @property
    def is_file(self) -> bool:
        """Tell whether it has content."""
        return stat.S_ISREG(self.mode)


Entries = dict[str, Entry]


def scan(root: str, prefix: str = "") -> tuple[Entries, list[str]]:
    """Return everything below `root`, named relative to it and below `prefix`, and the names that are left out."""
    found: Entries = {}
    left_out: list[str] = []
    waiting = [(root, prefix)]
    while waiting:
        directory, name = waiting.pop()
        try:
            listing = sorted(os.scandir(directory), key=lambda item: item.name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for item in listing:
            entry = _entry(item.path, f"{name}/{item.name}" if name else item.name, root=root)
            if entry is None:
                left_out.append(f"{name}/{item.name}" if name else item.name)
                continue
            found[entry.name] = entry
            if stat.S_ISDIR(entry.mode):
                waiting.append((item.path, entry.name))
    return found, left_out


def scan_one(path: str, name: str) -> tuple[Entries, list[str]]:
    """Return what a declared path is: a file, a link, or a directory with everything below it."""
    if not os.path.lexists(path):
        return {}, []
    entry = _entry(path, name, root=str(Path(path).parent))
    if entry is None:
        return {}, [name]
    if not stat.S_ISDIR(entry.mode):
        return {name: entry}, []
    found, left_out = scan(path, name)
    return {name: entry, **found}, left_out


def parts(entries: Iterable[Entry]) -> Iterator[bytes]:
    """Return a tar archive of the entries in parts, without the end mark.

    Raises ChangedError when a file is not what the scan saw.
    """
    pending = bytearray()
    for entry in entries:
        pending += _header(entry)
        if entry.is_file:
            for chunk in _content(entry):
                pending += chunk
                if len(pending) >= PART:
                    yield bytes(pending)
                    pending.clear()
            pending += bytes(-entry.size % _BLOCK)
    if pending:
        yield bytes(pending)


def unpack(pieces: Iterable[bytes], directory: Path) -> None:
    """Write an archive that arrives in parts below a directory."""
    with tarfile.open(fileobj=_Reader(pieces), mode="r|") as archive:
        # These archives are the task's own files, on their way back to it.
        archive.extraction_filter = lambda member, _path: member
        archive.extractall(directory)  # noqa: S202


class Incoming:
    """An archive that arrives on the head; it appears under its name when it is whole, and not before."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._part = path.with_name(path.name + ".part")
        self._file = self._part.open("wb")
        self._digest = hashlib.sha256()
        self.bytes = 0

    def write(self, part: bytes) -> None:
        """Append a part."""
        self._file.write(part)
        self._digest.update(part)
        self.bytes += len(part)

    def finish(self, *, carry: Iterable[str] = ()) -> str:
        """Close the archive, put it in its place, and return its sha256.

        `carry` names files that are taken from the archive it replaces.
        """
        wanted = set(carry)
        if wanted and self._path.exists():
            for piece in _members(self._path, wanted):
                self.write(piece)
        self.write(bytes(2 * _BLOCK))
        self._file.close()
        self._part.replace(self._path)
        return self._digest.hexdigest()

    def abandon(self) -> None:
        """Forget what has arrived."""
        self._file.close()
        self._part.unlink(missing_ok=True)


def _entry(path: str, name: str, *, root: str) -> Entry | None:
    try:
        found = os.lstat(path)
        target = _inside(str(Path(path).readlink()), name, root=root) if stat.S_ISLNK(found.st_mode) else None
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode) and target is None:
        return None
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) or target):
        return None
    size = found.st_size if stat.S_ISREG(found.st_mode) else 0
    return Entry(name, path, found.st_mode, size, found.st_mtime_ns, found.st_ino, target)


def _inside(target: str, name: str, *, root: str) -> str | None:
    """Return a link's target if it stays inside the archive; a target with the full path becomes relative."""
    if target.startswith(root.rstrip("/") + "/"):
        target = posixpath.relpath(target, posixpath.dirname(posixpath.join(root, name)))
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    return None if target.startswith("/") or joined == ".." or joined.startswith("../") else target


def _header(entry: Entry) -> bytes:
    member = tarfile.TarInfo(entry.name)
    member.mode = stat.S_IMODE(entry.mode)
    member.mtime = entry.mtime_ns // 1_000_000_000
    member.size = entry.size
    if stat.S_ISDIR(entry.mode):
        member.type = tarfile.DIRTYPE
    elif entry.target is not None:
        member.type, member.linkname = tarfile.SYMTYPE, entry.target
    return member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _content(entry: Entry) -> Iterator[bytes]:
    left = entry.size
    try:
        # O_NOFOLLOW: what was a file a moment ago may be a link by now.
        descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            while left:
                chunk = os.read(descriptor, min(left, PART))
                if not chunk:
                    raise ChangedError(entry.name)
                left -= len(chunk)
                yield chunk
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ChangedError(entry.name) from error
    if (after.st_size, after.st_mtime_ns) != (entry.size, entry.mtime_ns):
        raise ChangedError(entry.name)


def _members(path: Path, wanted: set[str]) -> Iterator[bytes]:
    with tarfile.open(path) as archive:
        for member in archive:
            if member.name in wanted:
                yield member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
                content = archive.extractfile(member)
                while content and (chunk := content.read(PART)):
                    yield chunk
                yield bytes(-member.size % _BLOCK)


class _Reader(io.RawIOBase):
    """What `tarfile` wants to read from, over parts."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = b""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes, fewer only at the end."""
        while len(self._rest) < size:
            piece = next(self._pieces, b"")
            if not piece:
                break
            self._rest += piece
        result, self._rest = self._rest[:size], self._rest[size:]
        return result
