"""Unpack an archive that a task wrote, over what is there: nothing in it may reach outside the
directory.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from trainyard_runner.wire import tree
from trainyard_runner.wire.archive import LONGEST_PATH, PART, LeftOut, stays_inside


def unpack(source: IO[bytes] | Iterable[bytes], directory: Path) -> list[LeftOut]:
    """Extract a tar stream, a file or pieces of bytes, file by file; return what was left out.

    What had the same name is replaced by the new file when that is whole, and by a directory or
    link at once. Raises tarfile.TarError for a damaged archive, and OSError for a full disk.
    """
    directory.mkdir(parents=True, exist_ok=True)
    stream: Any = source if hasattr(source, "read") else _Pieces(source)
    try:
        with (
            tree.Cursor(str(directory)) as cursor,
            tarfile.open(fileobj=stream, mode="r|", bufsize=PART) as archive,
        ):
            placing = _Placing(archive, cursor)
            return [left_out for member in archive if (left_out := _extract(member, placing))]
    except (
        ValueError,
        LookupError,
    ) as error:  # `tarfile` does not check numbers in extended headers
        raise tarfile.ReadError(f"a damaged header: {error}") from error


def _extract(member: tarfile.TarInfo, placing: _Placing) -> LeftOut | None:
    steps = [step for step in member.name.split("/") if step not in {"", "."}]
    try:
        reason = _objection(member, steps)
        if reason is None:
            placing.place(member, steps)
    except (OSError, ValueError, OverflowError) as error:
        if getattr(error, "errno", None) in {errno.ENOSPC, errno.EDQUOT}:
            raise
        reason = getattr(error, "strerror", None) or str(error)
    if reason:
        return LeftOut(member.name, reason, is_lost=member.isreg() or member.isdir())
    return None


def _objection(member: tarfile.TarInfo, steps: list[str]) -> str | None:
    if member.name.startswith("/"):
        return "an absolute path"
    if ".." in steps:
        return "a path that leads upwards"
    if "\0" in member.name:
        return "a name with a NUL character"
    if len(member.name) > LONGEST_PATH:
        return f"its path is longer than {LONGEST_PATH} characters"
    if member.islnk():
        return "a hard link"
    if member.issym() and not stays_inside("/".join(steps), member.linkname):
        return f"a link that leads outside ({ascii(member.linkname)[1:-1][:200]})"
    if not (member.isreg() or member.isdir() or member.issym()):
        return "a device or pipe"
    if steps or member.isdir():
        return None

    return "a file without a name"


class _Placing:
    """Puts members into their places: made under a name at the top that nobody uses, then
    renamed.
    """

    def __init__(self, archive: tarfile.TarFile, cursor: tree.Cursor) -> None:
        self._archive = archive
        self._cursor = cursor
        self._part = f".part-{secrets.token_hex(8)}"

    def place(self, member: tarfile.TarInfo, steps: list[str]) -> None:
        if member.isdir():
            directory = self._cursor.to("/".join(steps), make=True)
            if steps:
                os.fchmod(directory, (member.mode & 0o755) | 0o700)
            return

        directory = self._cursor.to("/".join(steps[:-1]), make=True)
        try:
            if member.issym():
                os.symlink(member.linkname, self._part, dir_fd=self._cursor.root)
            else:
                self._write(member)
            self._rename(steps[-1], directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(self._part, dir_fd=self._cursor.root)
            raise

    def _write(self, member: tarfile.TarInfo) -> None:
        content: Any = self._archive.extractfile(member)
        content = content.raw  # its buffer would not seek in a stream
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(
            os.open(self._part, flags, 0o600, dir_fd=self._cursor.root), "wb"
        ) as written:
            extents: Any = [(0, member.size)] if member.sparse is None else member.sparse
            for offset, size in extents:
                content.seek(offset)
                written.seek(offset)
                while size > 0 and (chunk := content.read(min(size, PART))):
                    written.write(chunk)
                    size -= len(chunk)

            written.truncate(member.size)
            # Only what is ours to give: no setuid, nothing for the world to write.
            os.fchmod(written.fileno(), (member.mode & 0o755) | 0o600)

        os.utime(self._part, (member.mtime, member.mtime), dir_fd=self._cursor.root)

    def _rename(self, name: str, directory: int) -> None:
        try:
            os.replace(self._part, name, src_dir_fd=self._cursor.root, dst_dir_fd=directory)
        except IsADirectoryError:
            tree.remove(name, dir_fd=directory)
            os.replace(self._part, name, src_dir_fd=self._cursor.root, dst_dir_fd=directory)


class _Pieces(io.RawIOBase):
    """What `tarfile` reads from, over pieces."""

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
        result = self._rest[:size]
        self._rest = self._rest[size:]
        return result
