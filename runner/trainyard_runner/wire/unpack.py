"""Unpack a task's archive over existing files, never outside a directory."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import tarfile
from collections.abc import Iterable
from pathlib import Path

from trainyard_runner.wire import tree
from trainyard_runner.wire.archive import PART, LeftOut, stays_inside


def unpack(pieces: Iterable[bytes], directory: Path) -> list[LeftOut]:
    """Extract a tar archive from pieces; return the members left out.

    A member replaces an existing path of the same name only once it is
    complete. Raises tarfile.TarError for an archive that is damaged or has no
    end mark, and OSError for a full disk.
    """
    directory.mkdir(parents=True, exist_ok=True)
    target = _Target(str(directory))
    left_out = []
    try:
        with tarfile.open(
            fileobj=_Pieces(pieces), mode="r|", bufsize=PART, tarinfo=_Member
        ) as archive:
            for member in archive:
                reason = _extract(archive, member, target)
                if reason:
                    is_lost = member.isreg() or member.isdir()
                    left_out.append(LeftOut(member.name, reason, is_lost=is_lost))
            _check_end(archive)
    except (ValueError, LookupError) as error:
        # `tarfile` does not check numbers in extended headers.
        raise tarfile.ReadError(f"a damaged header: {error}") from error

    return left_out


def _check_end(archive: tarfile.TarFile) -> None:
    """Raise ReadError unless only zeros follow the end mark's first block."""
    rest = archive.fileobj
    block = rest.read(PART) if rest else b""
    if not block:
        raise tarfile.ReadError("the archive ends within its end mark")
    while block:
        if block.strip(b"\0"):
            raise tarfile.ReadError("content follows the archive's end mark")
        block = rest.read(PART)


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, target: _Target) -> str | None:
    """Extract a member, or return why not; raise OSError for a full disk."""
    steps = [step for step in member.name.split("/") if step not in {"", "."}]
    objection = _objection(member, steps)
    if objection:
        return objection

    try:
        _place(archive, member, target, steps)
    except (OSError, ValueError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise
        return getattr(error, "strerror", None) or str(error)
    return None


def _objection(member: tarfile.TarInfo, steps: list[str]) -> str | None:
    if member.name.startswith("/"):
        return "an absolute path"
    if ".." in steps:
        return "a path that leads upwards"
    if "\0" in member.name:
        return "a name with a NUL character"
    if member.islnk():
        return "a hard link"
    if member.issym() and not stays_inside("/".join(steps), member.linkname):
        return f"a link that leads outside ({ascii(member.linkname)[1:-1][:200]})"
    if not (member.isreg() or member.isdir() or member.issym()):
        return "a device or pipe"
    if steps or member.isdir():
        return None

    return "a file without a name"


class _Target:
    """The directory that an archive is unpacked into.

    `part` is an unused path at the directory's top. A file or link is first
    made there, and renamed when complete: no unfinished file has its final
    name.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._last = root
        self.part = Path(root, f".part-{secrets.token_hex(8)}")

    def directory(self, steps: list[str]) -> str:
        """Make a directory and its parents, replacing links and files."""
        path = "/".join([self._root, *steps])
        # Consecutive members of one directory cannot replace it: it need not be made again.
        if path != self._last:
            made = self._root
            for step in steps:
                made = f"{made}/{step}"
                tree.make(made)
            self._last = path
        return path


def _place(
    archive: tarfile.TarFile, member: tarfile.TarInfo, target: _Target, steps: list[str]
) -> None:
    if member.isdir():
        directory = target.directory(steps)
        if steps:
            Path(directory).chmod((member.mode & 0o755) | 0o700)
        return

    path = Path(target.directory(steps[:-1]), steps[-1])
    part = target.part
    try:
        if member.issym():
            part.symlink_to(member.linkname)
        else:
            archive.makefile(member, part)
            # The archive's mode is not trusted: no setuid, and no write access for others.
            part.chmod((member.mode & 0o755) | 0o600)
            os.utime(part, (member.mtime, member.mtime))
        _rename(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def _rename(part: Path, path: Path) -> None:
    try:
        part.replace(path)
    except IsADirectoryError:
        tree.remove(str(path))
        part.replace(path)


class _Member(tarfile.TarInfo):
    """A member of an archive that must have an end mark.

    `tarfile` itself takes a missing or damaged header for the archive's end.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            is_end_mark = len(buf) == tarfile.BLOCKSIZE and not any(buf)
            if is_end_mark:
                raise
            raise tarfile.ReadError(f"neither a member nor the end mark: {error}") from error


class _Pieces(io.RawIOBase):
    """Makes an iterable of bytes readable as a file, for `tarfile`."""

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
