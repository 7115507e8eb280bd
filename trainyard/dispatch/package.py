"""A job directory as a zip that is named by its content: sent once, however often it is dispatched."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from trainyard.dispatch.ignore import Rules, rules_for, rules_of, source_of
from trainyard.errors import Problem, RequestError
from trainyard.results import formats
from trainyard.seams.ray_api import PACKAGE_LIMIT, PART_LIMIT

_BLOCK = 1024 * 1024
# The same content makes the same bytes on every machine and every day.
_EPOCH = (1980, 1, 1, 0, 0, 0)
# Packing big files costs more time than sending them: they are mostly weights and data.
_PACK_BELOW = 1024 * 1024


@dataclass(frozen=True)
class SentFile:
    """One file that travels: its name in the job directory, where it is now, and its size in bytes."""

    name: str
    path: Path = field(repr=False)
    size: int
    executable: bool = False


@dataclass(frozen=True)
class LeftOut:
    """A file or a whole directory ("name/") that stays here, and why."""

    name: str
    by: str


@dataclass(frozen=True)
class Listing:
    """What a job directory holds for a cluster."""

    directory: Path
    files: tuple[SentFile, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def size(self) -> int:
        """Return how many bytes are sent at most, unpacked."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class Package:
    """A packed directory. `name` stands for its content; `parts` are named by their own bytes, in order."""

    name: str
    parts: tuple[str, ...]
    size: int
    archive: IO[bytes] = field(repr=False)

    def read(self, part: int) -> Iterator[bytes]:
        """Yield the bytes of one part."""
        self.archive.seek(part * PART_LIMIT)
        left = self.part_size(part)
        while left > 0:
            block = self.archive.read(min(_BLOCK, left))
            left -= len(block)
            yield block

    def part_size(self, part: int) -> int:
        return min(PART_LIMIT, self.size - part * PART_LIMIT)


def listing(directory: Path) -> Listing:
    """List what is sent and what is left out; reads ignore files, changes nothing.

    Links are followed (a job may link to code it shares), but never round in circles.
    """
    root = directory.resolve()
    files: list[SentFile] = []
    left_out: list[LeftOut] = []
    _walk(root, root, rules_for(root), (root,), files, left_out)
    return Listing(root, tuple(sorted(files, key=lambda file: file.name)), tuple(left_out))


def pack(listed: Listing, *, prefix: str = "") -> Package:
    """Zip the listed files; the same content gives the same name, whatever the times and the order on disk.

    Raises RequestError when a file cannot be read or the whole exceeds what Ray takes.
    """
    if listed.size >= PACKAGE_LIMIT:
        raise _too_big(listed)
    identity = hashlib.sha256()
    archive = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the package, nameless
    with zipfile.ZipFile(archive, "w") as bundle:
        for file in listed.files:
            digest = _add(bundle, file, name=prefix + file.name)
            identity.update(f"{prefix}{file.name}\0{file.executable:d}\0{digest}\n".encode())
    size = archive.seek(0, os.SEEK_END)
    whole = Package(package_name(identity.hexdigest()), (), size, archive)
    return replace(whole, parts=tuple(_part_name(whole, part) for part in range(-(-size // PART_LIMIT))))


def package_name(sha256: str) -> str:
    return f"_ray_pkg_{sha256[:40]}.zip"


def blob_name(content: bytes) -> str:
    return package_name(hashlib.sha256(content).hexdigest())


def _walk(
    directory: Path,
    root: Path,
    rules: Sequence[Rules],
    above: tuple[Path, ...],
    files: list[SentFile],
    left_out: list[LeftOut],
) -> None:
    for path in sorted(directory.iterdir()):
        is_directory = path.is_dir()
        name = path.relative_to(root).as_posix() + ("/" if is_directory else "")
        why = source_of(path, rules, is_directory=is_directory) or _unsendable(path, above)
        if why:
            left_out.append(LeftOut(name, why))
        elif is_directory:
            _walk(path, root, (*rules_of(path, root=root), *rules), (*above, path.resolve()), files, left_out)
        else:
            files.append(_sent(path, name))


def _unsendable(path: Path, above: tuple[Path, ...]) -> str | None:
    if path.is_symlink() and not path.exists():
        return "a link to nothing"
    if path.is_dir():
        return "a link in a circle" if path.resolve() in above else None
    return None if path.is_file() else "not a regular file"


def _sent(path: Path, name: str) -> SentFile:
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = name.encode(errors="surrogateescape").decode("latin-1")
        raise RequestError(
            "a file cannot be sent", problems=(Problem(shown, "its name is not UTF-8"),), hint="Rename or ignore it."
        ) from None
    found = path.stat()
    return SentFile(name, path, found.st_size, executable=bool(found.st_mode & stat.S_IXUSR))


def _add(bundle: zipfile.ZipFile, file: SentFile, *, name: str) -> str:
    """Write one file into the zip; return the sha256 of its content."""
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.create_system = 3  # Unix: the mode below is read
    entry.external_attr = (stat.S_IFREG | (0o755 if file.executable else 0o644)) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED if file.size < _PACK_BELOW else zipfile.ZIP_STORED
    entry.file_size = file.size
    digest = hashlib.sha256()
    try:
        with file.path.open("rb") as source, bundle.open(entry, "w") as packed:
            for block in iter(lambda: source.read(_BLOCK), b""):
                digest.update(block)
                packed.write(block)
    except OSError as error:
        raise RequestError(
            "a file cannot be sent", problems=(Problem(file.name, error.strerror or str(error)),)
        ) from error
    return digest.hexdigest()


def _part_name(package: Package, part: int) -> str:
    digest = hashlib.sha256()
    for block in package.read(part):
        digest.update(block)
    return package_name(digest.hexdigest())


def _too_big(listed: Listing) -> RequestError:
    return RequestError(
        f"the job directory is too big for Ray: {formats.size(listed.size)} of at most {formats.size(PACKAGE_LIMIT)}",
        where=str(listed.directory),
        problems=tuple(Problem(file.name, formats.size(file.size)) for file in sorted(listed.files, key=_by_size)[:5]),
        hint="Name what the job does not need in .rayignore, or read it from a shared place.",
    )


def _by_size(file: SentFile) -> tuple[int, str]:
    return -file.size, file.name
