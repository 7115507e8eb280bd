"""Pack a job directory into a zip named by the hash of its content."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import trainyard_runner

from trainyard.dispatch.ignore import Rules, rules_for, rules_of, source_of
from trainyard.errors import Problem, RequestError
from trainyard.results import formats
from trainyard.seams.ray_api import PACKAGE_LIMIT, PART_LIMIT

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
# A fixed time for all entries, so that the same content gives the same bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)
# Bytes. Larger files, mostly weights and data, are stored uncompressed: compression takes longer
# than sending.
_PACK_BELOW = 1024 * 1024


@dataclass(frozen=True)
class SentFile:
    """A file to send; `name` is its path in the job, `size` is in bytes.

    `mode` says only whether the file is executable, and whether only its owner
    may read it.
    """

    name: str
    path: Path = field(repr=False)
    size: int
    mode: int = 0o644


@dataclass(frozen=True)
class LeftOut:
    """A file, or a directory ("name/"), that is not sent.

    `by` is the ignore file, or another reason.
    """

    name: str
    by: str


@dataclass(frozen=True)
class Listing:
    """The files of a job directory: those to send, and those left out."""

    directory: Path
    files: tuple[SentFile, ...]
    left_out: tuple[LeftOut, ...]
    # Directories that are sent without files.
    empty_directories: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Return the bytes of all files, before compression."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class Package:
    """A packed directory, which is uploaded in parts of PART_LIMIT bytes.

    Each name in `parts` has a hash of the part's bytes, `name` a hash of these
    names. `size` is the packed size in bytes.
    """

    name: str
    parts: tuple[str, ...]
    size: int
    archive: IO[bytes] = field(repr=False)

    def read(self, part: int) -> bytes:
        self.archive.seek(part * PART_LIMIT)
        return self.archive.read(PART_LIMIT)


@dataclass(frozen=True)
class Packages:
    """The packages of one run: the job's files, wheels and Python modules.

    `wheel_files` are in the package `wheels`. `modules` has a package for each
    Python module, or an address from which Ray itself fetches the module.
    """

    job: Package
    wheel_files: tuple[Path, ...] = ()
    wheels: Package | None = None
    modules: tuple[str | Package, ...] = ()


def listing(directory: Path) -> Listing:
    """List the files of a directory: those to send, and those left out.

    Files that are ignored or not regular are left out. Symbolic links are
    followed, since a job may link to shared code; broken and circular links are
    left out.
    """
    root = directory.resolve()
    files = []
    left_out = []
    empty_directories = []
    for entry in _walk(root, root, rules_for(root), (root,)):
        if isinstance(entry, SentFile):
            files.append(entry)
        elif isinstance(entry, LeftOut):
            left_out.append(entry)
        else:
            empty_directories.append(entry)

    files.sort(key=lambda file: file.name)
    empty_directories.sort()
    return Listing(root, tuple(files), tuple(left_out), tuple(empty_directories))


def sent_file(path: Path, name: str) -> SentFile:
    """Describe a file to send. Raises RequestError if `name` is not UTF-8."""
    found = path.stat()
    mode = 0o755 if found.st_mode & stat.S_IXUSR else 0o644
    if not found.st_mode & _OTHERS:
        mode &= stat.S_IRWXU
    return SentFile(_utf_8(name), path, found.st_size, mode)


def _utf_8(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = name.encode(errors="surrogateescape").decode("latin-1")
        raise RequestError(
            "a file cannot be sent",
            problems=(Problem(shown, "its name is not UTF-8"),),
            hint="Rename or ignore it.",
        ) from None
    return name


def pack(listed: Listing, *, prefix: str = "") -> Package:
    """Zip files into a temporary file, each under `prefix` + its name.

    Times and order of the files on disk do not change the package's name.
    Raises RequestError if a file cannot be read, or the files together reach
    Ray's PACKAGE_LIMIT.
    """
    if listed.size >= PACKAGE_LIMIT:
        raise _too_big(listed)
    archive = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the package
    with zipfile.ZipFile(archive, "w") as bundle:
        for file in listed.files:
            _add(bundle, file, name=prefix + file.name)
        for name in listed.empty_directories:
            bundle.writestr(_zip_entry(f"{prefix}{name}/", stat.S_IFDIR | 0o755), b"")
    size = archive.seek(0, os.SEEK_END)
    archive.seek(0)
    parts = tuple(map(blob_name, iter(lambda: archive.read(PART_LIMIT), b"")))
    return Package(blob_name("".join(parts).encode()), parts, size, archive)


def blob_name(content: bytes) -> str:
    """Return Ray's name for an upload of these bytes."""
    return f"_ray_pkg_{hashlib.sha256(content).hexdigest()[:40]}.zip"


def runner_package() -> Package:
    """Pack the runner, even if an ignored .venv contains it."""
    root = Path(trainyard_runner.__file__).parent
    sources = sorted(root.rglob("*.py"))
    files = [sent_file(path, path.relative_to(root).as_posix()) for path in sources]
    return pack(Listing(root, tuple(files), ()), prefix="trainyard_runner/")


def _walk(
    directory: Path, root: Path, rules: Sequence[Rules], above: tuple[Path, ...]
) -> Iterator[SentFile | LeftOut | str]:
    """Yield files to send, entries left out, and directories to send empty."""
    for path in sorted(directory.iterdir()):
        is_directory = path.is_dir()
        name = path.relative_to(root).as_posix()
        reason = source_of(path, rules, is_directory=is_directory) or _unsendable(path, above)
        if reason:
            yield LeftOut(f"{name}/" if is_directory else name, reason)
        elif not is_directory:
            yield sent_file(path, name)
        else:
            rules_below = (*rules_of(path, root=root), *rules)
            entries = list(_walk(path, root, rules_below, (*above, path.resolve())))
            yield from entries
            if all(isinstance(entry, LeftOut) for entry in entries):
                yield _utf_8(name)


def _unsendable(path: Path, above: tuple[Path, ...]) -> str | None:
    if path.is_symlink() and not path.exists():
        return "a broken link"
    if path.is_dir():
        if path.resolve() in above:
            return "a circular link"
        return None
    if path.is_file():
        return None
    return "not a regular file"


def _add(bundle: zipfile.ZipFile, file: SentFile, *, name: str) -> None:
    entry = _zip_entry(name, stat.S_IFREG | file.mode)
    if file.size < _PACK_BELOW:
        entry.compress_type = zipfile.ZIP_DEFLATED
    else:
        entry.compress_type = zipfile.ZIP_STORED
    entry.file_size = file.size
    try:
        with file.path.open("rb") as source, bundle.open(entry, "w") as packed:
            shutil.copyfileobj(source, packed)
    except OSError as error:
        raise RequestError(
            "a file cannot be sent", problems=(Problem(file.name, error.strerror or str(error)),)
        ) from error


def _zip_entry(name: str, mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _EPOCH)
    # 3 means Unix, so that tools read the file's mode from external_attr.
    entry.create_system = 3
    entry.external_attr = mode << 16
    return entry


def _too_big(listed: Listing) -> RequestError:
    biggest = sorted(listed.files, key=lambda file: (-file.size, file.name))[:5]
    return RequestError(
        f"the job directory is too big for Ray: {formats.size(listed.size)} of at most "
        f"{formats.size(PACKAGE_LIMIT)}",
        where=str(listed.directory),
        problems=tuple(Problem(file.name, formats.size(file.size)) for file in biggest),
        hint="Name in .rayignore what the job does not need, or let it read from a shared place.",
    )
