"""Directories as tar archives: made in parts on nodes, joined on the head.

Symbolic links are never followed. A link is kept if its target is inside the
archive. Other links are left out, as are sockets, pipes, devices, and paths
that are too long to open.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import posixpath
import stat
import tarfile
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

PART = 1024 * 1024
_BLOCK = 512
_MOST_LINKS = 40  # as Linux follows in one path
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class ChangedError(Exception):
    """A file changed after its scan, or while it was read."""


@dataclass(frozen=True)
class LeftOut:
    """A path that is not sent or not written, and the reason.

    `is_lost`: the user loses content, such as an unreadable file; a pipe is no
    loss. `target`: the full target of a link that leads outside.
    """

    name: str
    reason: str
    is_lost: bool
    target: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{ascii(self.name)[1:-1][:200]}: {self.reason}"


@dataclass(frozen=True)
class Entry:
    """A file, directory or link at the time of the scan.

    `inside`: the path below the directory `root`. `name`: the name in the
    archive. `changed_ns`: the ctime, which no program can set; a new mtime
    changes it, too. `data_bytes`: the bytes to send, without the holes of a
    sparse file. Comparisons ignore `data_bytes`, which may change without a
    write.
    """

    name: str
    root: str
    inside: str
    mode: int
    size: int
    mtime_ns: int
    changed_ns: int
    inode: int
    target: str | None = None
    data_bytes: int = field(default=0, compare=False)

    @property
    def path(self) -> str:
        """Return the full path; it may be too long for the system."""
        return posixpath.join(self.root, self.inside)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)


Entries = dict[str, Entry]


def scan(root: str, prefix: str = "") -> tuple[Entries, list[LeftOut]]:
    """Return the entries of everything below `root`, and the paths left out.

    Entries are named `prefix`/PATH, with PATH relative to `root`. A directory
    that cannot be read is left out with its content, and so is `root` itself if
    it is a link.
    """
    found: Entries = {}
    left_out: list[LeftOut] = []
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        name = posixpath.join(prefix, inside) if inside else prefix
        try:
            listing = _listing(posixpath.join(root, inside) if inside else root)
        except OSError as error:
            found.pop(name, None)
            left_out += _lost(name or ".", error)
            continue

        for item in listing:
            below = posixpath.join(inside, item)
            entry = _entry(posixpath.join(prefix, below), root=root, inside=below)
            if isinstance(entry, LeftOut):
                left_out.append(entry)
            elif entry is not None:
                found[entry.name] = entry
                if stat.S_ISDIR(entry.mode):
                    waiting.append(below)

    return found, left_out


def scan_one(path: str, name: str) -> tuple[Entries, list[LeftOut]]:
    """Return the entries of a declared output, and the paths that are left out.

    `path` is a file, a link, or a directory with everything below it; `name` is
    its name in the archive. A missing path has no entries and nothing left out.
    A pipe, a device or a link that leads outside is left out as lost, because
    the job declares it.
    """
    parent, base = posixpath.split(path)
    entry = _entry(name, root=parent, inside=base)
    if entry is None:
        return {}, []
    if isinstance(entry, LeftOut):
        return {}, [replace(entry, is_lost=True)]
    if not stat.S_ISDIR(entry.mode):
        return {name: entry}, []

    found, left_out = scan(path, name)
    return {name: entry, **found}, left_out


def parts(entries: Iterable[Entry], left_out: list[LeftOut] | None = None) -> Iterator[bytes]:
    """Yield a tar archive of the entries in parts, without the end mark.

    Without `left_out`, raises ChangedError if a file changed after the scan,
    and skips a file that this user may not read. With `left_out`, sends each
    file as it is now, and appends unreadable files to `left_out`. If a file
    shrinks while it is read, zeros replace its end.
    """
    pending = bytearray()
    for entry in entries:
        for piece in _pieces(entry, left_out):
            pending += piece
            if len(pending) >= PART:
                yield bytes(pending)
                pending.clear()

    if pending:
        yield bytes(pending)


def without_loose_links(entries: Entries, left_out: list[LeftOut]) -> Entries:
    """Return the entries, except links whose targets exist but are not sent.

    Appends these links to `left_out` as lost.
    """
    kept: Entries = {}
    for name, entry in entries.items():
        target = "."
        if entry.target:
            target = _target(name, entry.target)
        is_loose = target != "." and _end(target, entries) not in entries
        if is_loose and Path(entry.path).exists():
            reason = f"a link to {ascii(target)[1:-1][:200]}, which is no output"
            left_out.append(LeftOut(name, reason, is_lost=True))
        else:
            kept[name] = entry

    return kept


def hidden(entries: Entries, *, by: Entries) -> list[LeftOut]:
    """Return the entries that are lost, because a declared output has the name.

    Two directories of the same name are sent as one.
    """
    left_out = []
    for name, entry in entries.items():
        other = by.get(name)
        if other is not None and not (stat.S_ISDIR(entry.mode) and stat.S_ISDIR(other.mode)):
            left_out.append(LeftOut(name, "a declared output has the same name", is_lost=True))
    return left_out


def stays_inside(name: str, target: str) -> bool:
    """Return whether a link stays inside, even if other paths become links.

    `name` is the link's name. The target must be a relative path in which all
    ".." come first. They may lead up to the top, but no higher.
    """
    steps = [step for step in target.split("/") if step not in {"", "."}]
    ups = next((number for number, step in enumerate(steps) if step != ".."), len(steps))
    return not target.startswith("/") and ups <= name.count("/") and ".." not in steps[ups:]


class Incoming:
    """An archive that arrives on the head, and gets its name once complete."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._part = path.with_name(path.name + ".part")
        self._file = self._part.open("wb")
        self._digest = hashlib.sha256()
        self.bytes = 0

    def write(self, part: bytes) -> None:
        self._file.write(part)
        self._digest.update(part)
        self.bytes += len(part)

    def finish(self, *, carry: Iterable[str] = ()) -> str:
        """Close the archive, give it its name, and return its sha256.

        The files named in `carry` are first copied from the archive that this
        one replaces.
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
        # Closing writes the rest, which fails on a full disk. The rest is not needed.
        with contextlib.suppress(OSError):
            self._file.close()
        self._part.unlink(missing_ok=True)


def _target(name: str, target: str) -> str:
    """Return the path in the archive that a link leads to by its text."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), target))


def _end(path: str, entries: Entries) -> str:
    """Return the path without links among its parent directories."""
    for _ in range(_MOST_LINKS):
        link = _linked_parent(path, entries)
        if link is None:
            return path
        rest = path[len(link.name) + 1 :]
        path = posixpath.normpath(posixpath.join(_target(link.name, link.target or ""), rest))
    return path


def _linked_parent(path: str, entries: Entries) -> Entry | None:
    """Return the topmost parent directory of a path that is a link."""
    for parent in reversed(PurePosixPath(path).parents):
        entry = entries.get(str(parent))
        if entry is not None and entry.target is not None:
            return entry
    return None


def _listing(directory: str) -> list[str]:
    """Return a directory's sorted names. Raises OSError for a link or file."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        return sorted(item.name for item in os.scandir(descriptor))
    finally:
        os.close(descriptor)


def _entry(name: str, *, root: str, inside: str) -> Entry | LeftOut | None:
    path = posixpath.join(root, inside)
    try:
        found = os.lstat(path)
        target = None
        if stat.S_ISLNK(found.st_mode):
            target = os.readlink(path)  # noqa: PTH115 - a Path would change it
    except FileNotFoundError:
        return None
    except OSError as error:
        return _lost(name, error)[0]

    if (kind := _KINDS.get(stat.S_IFMT(found.st_mode))) is not None:
        return LeftOut(name, kind, is_lost=False)

    if target is not None:
        top = posixpath.normpath(root) + "/"
        if target.startswith(top):
            target = posixpath.relpath(target, posixpath.dirname(top + inside))
        if not stays_inside(name, target):
            reason = f"a link that leads outside ({ascii(target)[1:-1][:200]})"
            end = posixpath.normpath(posixpath.join(top, posixpath.dirname(inside), target))
            return LeftOut(name, reason, is_lost=False, target=end)

    size = found.st_size if stat.S_ISREG(found.st_mode) else 0
    data_bytes = min(size, found.st_blocks * 512)
    moments = (found.st_mtime_ns, found.st_ctime_ns)
    return Entry(
        name, root, inside, found.st_mode, size, *moments, found.st_ino, target, data_bytes
    )


def _lost(name: str, error: OSError) -> list[LeftOut]:
    if isinstance(error, FileNotFoundError):  # removed by the task
        return []
    is_replaced = error.errno in {errno.ENOTDIR, errno.ELOOP}
    if is_replaced:
        reason = "a link or file took its place"
    else:
        reason = f"it cannot be read: {error.strerror}"
    return [LeftOut(name, reason, is_lost=True)]


def _missed(name: str, error: OSError, left_out: list[LeftOut] | None) -> None:
    if left_out is not None:
        left_out += _lost(name, error)
    elif not isinstance(error, PermissionError):  # a locked file has not changed
        raise ChangedError(name) from error


def _pieces(entry: Entry, left_out: list[LeftOut] | None) -> Iterator[bytes]:
    if not entry.is_file:
        yield _header(entry.name, entry.mode, entry.mtime_ns, target=entry.target)
        return

    try:
        # The file may have become a link or a pipe after the scan.
        descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        _missed(entry.name, error, left_out)
        return

    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or (left_out is None and _changed(entry, descriptor)):
            _missed(entry.name, OSError(errno.ENOTDIR, ""), left_out)
            return

        is_whole = yield from _file(entry, descriptor, found)
        if left_out is None and (not is_whole or _changed(entry, descriptor)):
            raise ChangedError(entry.name)

        if left_out is not None and not is_whole:
            left_out.append(
                LeftOut(entry.name, "it shrank while it was read: its end is zeros", is_lost=True)
            )
    finally:
        os.close(descriptor)


def _changed(entry: Entry, descriptor: int) -> bool:
    found = os.fstat(descriptor)
    return (found.st_size, found.st_mtime_ns) != (entry.size, entry.mtime_ns)


def _file(entry: Entry, descriptor: int, found: os.stat_result) -> Generator[bytes, None, bool]:
    """Yield a file's header and content; return whether all could be read."""
    size = found.st_size
    is_whole = True
    if found.st_blocks * 512 < size:
        segments = _segments(descriptor, size)
    else:
        segments = [(0, size)]

    sent = sum(length for _, length in segments)
    if segments == [(0, size)]:
        yield _header(entry.name, found.st_mode, found.st_mtime_ns, size=size)
    else:
        yield _sparse_header(entry.name, found, segments, sent=sent)

    for offset, length in segments:
        end = offset + length
        while offset < end:
            chunk = b""
            with contextlib.suppress(OSError):
                chunk = os.pread(descriptor, min(end - offset, PART), offset)
            is_whole = is_whole and bool(chunk)
            yield chunk or bytes(min(end - offset, PART))
            offset += len(chunk) or PART

    yield bytes(-sent % _BLOCK)
    return is_whole


def _segments(descriptor: int, size: int) -> list[tuple[int, int]]:
    """Return (offset, length) of each data segment, without the holes."""
    found: list[tuple[int, int]] = []
    at = 0
    while at < size:
        try:
            start = min(size, os.lseek(descriptor, at, os.SEEK_DATA))
            at = min(size, os.lseek(descriptor, start, os.SEEK_HOLE))
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole follows
                return found
            return [(0, size)]  # this file system does not report holes
        found.append((start, at - start))
    return found


def _sparse_header(
    name: str, found: os.stat_result, segments: list[tuple[int, int]], *, sent: int
) -> bytes:
    """Return a sparse file's header in GNU format 1.0, which `tarfile` reads.

    The header has the real name and size, then the offset and length of each
    segment, and last an empty segment at the file's end. `sent`: bytes of all
    segments.
    """
    listed = [*segments, (found.st_size, 0)]
    extents = "".join(
        [f"{len(listed)}\n", *(f"{offset}\n{length}\n" for offset, length in listed)]
    ).encode()
    extents += bytes(-len(extents) % _BLOCK)
    member = tarfile.TarInfo("GNUSparseFile.0")
    fields = {"major": "1", "minor": "0", "name": name, "realsize": str(found.st_size)}
    member.pax_headers = {f"GNU.sparse.{key}": value for key, value in fields.items()}
    # Only these fields: `tarfile` takes a `size` among them, as from 8 GiB on, for the real size.
    extended = member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")[:-_BLOCK]
    member.mode = stat.S_IMODE(found.st_mode)
    member.mtime = found.st_mtime_ns // 1_000_000_000
    member.size = len(extents) + sent
    return extended + member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape") + extents


def _header(
    name: str, mode: int, mtime_ns: int, *, size: int = 0, target: str | None = None
) -> bytes:
    member = tarfile.TarInfo(name)
    member.mode = stat.S_IMODE(mode)
    member.mtime = mtime_ns // 1_000_000_000
    member.size = size
    if stat.S_ISDIR(mode):
        member.type = tarfile.DIRTYPE
    elif target is not None:
        member.type = tarfile.SYMTYPE
        member.linkname = target
    return member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _members(path: Path, wanted: set[str]) -> Iterator[bytes]:
    """Yield the bytes of an archive's `wanted` members, headers included."""
    with tarfile.open(path) as archive, path.open("rb") as file:
        for member in archive:
            if member.name in wanted:
                file.seek(member.offset)
                while block := file.read(min(PART, archive.offset - file.tell())):
                    yield block
