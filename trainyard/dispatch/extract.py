"""Unpack an archive that a task wrote: nothing in it may reach outside the directory it is meant for."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

_BLOCK = 1024 * 1024


def extract(archive: IO[bytes], target: Path) -> list[str]:
    """Unpack a tar stream into an empty directory; return what was left out, each with its reason.

    Links are made last, so that no file is ever written through one, and only those that end inside the target.
    """
    left_out: list[str] = []
    links: list[tarfile.TarInfo] = []
    with tarfile.open(fileobj=archive, mode="r|") as members:
        for member in members:
            reason = _objection(member)
            if reason:
                left_out.append(f"{_shown(member.name)}: {reason}")
            elif member.issym():
                links.append(member)
            else:
                try:
                    _place(members, member, target)
                except (OSError, ValueError, OverflowError) as error:
                    left_out.append(f"{_shown(member.name)}: {_why(error)}")
    left_out += _make_links(links, target)
    return left_out


def _objection(member: tarfile.TarInfo) -> str | None:
    path = PurePosixPath(member.name)
    if path.is_absolute():
        return "an absolute path"
    if ".." in path.parts:
        return "a path that leads upwards"
    if "\0" in member.name:
        return "a name with a NUL character"
    if member.issparse():
        return "a sparse file"
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        return "a device or pipe"
    return None


def _place(members: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    path = target / member.name
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if member.islnk():
        _copy_linked(target, member, path)
        return
    content = members.extractfile(member)
    if content is None:
        raise ValueError("it has no content")
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as written:
        shutil.copyfileobj(content, written, _BLOCK)
        # Only what is ours to give: no setuid, nothing for the world to write.
        os.fchmod(written.fileno(), (member.mode & 0o755) | 0o600)
    os.utime(path, (member.mtime, member.mtime))


def _copy_linked(target: Path, member: tarfile.TarInfo, path: Path) -> None:
    linked = PurePosixPath(member.linkname)
    original = target / member.linkname
    if linked.is_absolute() or ".." in linked.parts or not original.is_file():
        raise ValueError("a hard link to something else than a file before it")
    path.unlink(missing_ok=True)
    os.link(original, path)


def _make_links(links: list[tarfile.TarInfo], target: Path) -> Iterator[str]:
    """Make symbolic links, then take back those that end outside now that all of them stand."""
    root = os.path.realpath(target)
    made: list[tuple[tarfile.TarInfo, Path]] = []
    for member in links:
        path = target / member.name
        try:
            if not _inside(os.path.realpath(path.parent), root):
                raise ValueError("its directory is a link that leads outside")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(member.linkname)
            made.append((member, path))
        except (OSError, ValueError) as error:
            yield f"{_shown(member.name)}: {_why(error)}"
    # A link that is harmless alone may lead outside through another one, hence after all are made.
    for member, path in made:
        if PurePosixPath(member.linkname).is_absolute() or not _inside(os.path.realpath(path), root):
            path.unlink()
            yield f"{_shown(member.name)}: a link that leads outside ({_shown(member.linkname)})"


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root + os.sep)


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _shown(name: str) -> str:
    return ascii(name)[1:-1][:200]
