"""What is in an image: the files that its build sees, as one list, as one stream, and as the hash that names it.

The hash of an image and the bytes that the builder gets come from the same list: they cannot disagree. A packaged
game has gigabytes, and an unchanged build must be quick: digests of large files are kept, under all that changes with a
file's content (git's index relies on the same). What is lost is computed again.
"""

from __future__ import annotations

import hashlib
import re
import stat
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO

from trainyard import paths, versions
from trainyard.errors import Problem, RequestError
from trainyard.images import catalog
from trainyard.images.types import Image
from trainyard.seams.docker import build as docker_build
from trainyard.spec.load import IMAGE_FILE_NAME

DOCKERFILE = "Dockerfile"
# Files get one date, or the same code would be another layer in every checkout. Not 1970: ZIP (wheels) starts in 1980.
DATE = 946_684_800
# Where a Dockerfile uses the base that it is given; a comment is no use.
_BASE = re.compile(r"^(?!\s*#).*\$(?:BASE\b|\{BASE\b)", re.MULTILINE)
LENGTH = 12
# Changes when an image is built in another way from the same files.
RECIPE = "2"
# Below, reading a file again is as quick as looking it up.
LARGE = 16 * 1024 * 1024


@dataclass(frozen=True)
class Entry:
    """One file, link or directory of a build. `source` is where it is read from."""

    path: str
    source: Path

    @property
    def mode(self) -> int:
        """Return the mode that it gets: git keeps no more of it than whether it can be executed."""
        return 0o755 if self.source.is_dir() or self.source.stat().st_mode & stat.S_IXUSR else 0o644


def entries(image: Image) -> tuple[Entry, ...]:
    """Return what the build sees, in order. Raises RequestError when something that image.yaml adds is not there."""
    own = {path: image.directory / path for path in docker_build.context_files(image.directory)}
    # image.yaml is description, not content: a better sentence in it needs no new image.
    for path in (DOCKERFILE, IMAGE_FILE_NAME):
        own.pop(path, None)
    return tuple(Entry(path, source) for path, source in sorted({**own, **dict(_added(image))}.items()))


def dockerfile(image: Image) -> str:
    """Return the image's Dockerfile. Raises RequestError when it has none, or one that builds on another base."""
    path = image.directory / DOCKERFILE
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is no file")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        # An OSError's own text has the path once more.
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise RequestError(
            f"image {image.name} has no Dockerfile that can be read", where=f"{path}: {reason}"
        ) from error
    if not _BASE.search(text):
        raise RequestError(
            f"the base of image {image.name} has no effect: its Dockerfile does not use it",
            where=f"{path}; {image.base} is the base that image.yaml, build.base or --base names",
            hint="Begin the Dockerfile with these two lines: ARG BASE, FROM ${BASE}",
        )
    return text


def write(image: Image, target: IO[bytes]) -> None:
    """Write what the build sees as a tar stream, the Dockerfile first."""
    with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        content = dockerfile(image).encode()
        header = _header(tarfile.TarInfo(DOCKERFILE), mode=0o644)
        header.size = len(content)
        archive.addfile(header, BytesIO(content))
        for entry in entries(image):
            _add(archive, entry)


def _add(archive: tarfile.TarFile, entry: Entry) -> None:
    header = archive.gettarinfo(str(entry.source), arcname=entry.path)
    if header is None or header.islnk():
        # The second name of a file that is there already: what matters to a build is its content.
        header = tarfile.TarInfo(entry.path)
        header.size = entry.source.stat().st_size
    if header.issym():
        archive.addfile(_header(header, mode=0o777))
    elif header.isdir():
        archive.addfile(_header(header, mode=0o755))
    else:
        with entry.source.open("rb") as stream:
            archive.addfile(_header(header, mode=entry.mode), stream)


def _header(header: tarfile.TarInfo, *, mode: int) -> tarfile.TarInfo:
    """Return a header without what differs between two checkouts: owner, date, umask."""
    header.mtime, header.mode = DATE, mode
    header.uid = header.gid = 0
    header.uname = header.gname = ""
    return header


def _added(image: Image) -> Iterator[tuple[str, Path]]:
    """Yield what image.yaml adds from outside of the image's directory."""
    for path, written in image.file.contents.items():
        source = (image.directory / Path(written).expanduser()).resolve()
        if not source.exists():
            problem = Problem(f"{image.directory / IMAGE_FILE_NAME}: contents.{path}", f"{source} does not exist")
            raise RequestError(f"image {image.name} lacks a part of its content", problems=(problem,))
        yield path, source
        if source.is_dir():
            yield from ((f"{path}/{inner}", source / inner) for inner in docker_build.context_files(source))


def tag(source: str, *, base: str) -> str:
    """Return the tag of an image by its source_hash, and its base's id: a base whose tag moved makes another image.

    Of a base that the engine does not have, its name counts.
    """
    return _hash({"source": source, "base": base})


def source_tag(source: str) -> str:
    """Return the tag by which clusters find what was pushed from these files, whatever its base was then."""
    return f"src-{source}"


def source_hash(image: Image, environ: Mapping[str, str], *, platform: str | None = None) -> str:
    """Return the hash of what stands in files here, which a machine can compute that does not have the base.

    Two images with the same source differ at most in what a moving tag of their base meant when they were built.
    """
    arguments = {f"argument {name}": value for name, value in catalog.arguments(image).items()}
    cache = paths.cache_home(environ) / "digests"
    files = {f"entry {entry.path}": _cached(entry, cache) for entry in entries(image)}
    fixed = {
        "recipe": RECIPE,
        "ray": versions.RAY,
        "platform": platform or "",
        "dockerfile": dockerfile(image),
    }
    return _hash({**fixed, **arguments, **files})


def digest(entry: Entry) -> str:
    """Return what makes an entry another one: its kind, its content, whether it can be executed.

    Raises RequestError for what cannot be read, and for what is no file: reading a pipe would wait for ever.
    """
    try:
        if entry.source.is_symlink():
            return f"link {entry.source.readlink()}"
        if entry.source.is_dir():
            return "directory"
        if not entry.source.is_file():
            raise OSError("it is no file, link or directory")
        return f"file {entry.mode:o} {_file_hash(entry.source)}"
    except OSError as error:
        raise RequestError(
            f"a part of the image cannot be read: {entry.path}",
            where=f"{entry.source}: {error.strerror or error}",
            hint="Remove it, make it readable for you, or name it in the image's .dockerignore.",
        ) from error


def _cached(entry: Entry, directory: Path) -> str:
    if entry.source.is_symlink() or entry.source.lstat().st_size < LARGE:
        return digest(entry)
    key = _key(entry)
    kept = directory / key
    with suppress(OSError):
        return kept.read_text()
    found = digest(entry)
    # A file that was written to while it was read has other times now: its digest is not kept under the old ones.
    if _key(entry) == key:
        # A cache that cannot be written only costs time.
        with suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
            part = kept.with_suffix(".part")
            part.write_text(found)
            part.replace(kept)
    return found


def _key(entry: Entry) -> str:
    status = entry.source.lstat()
    facts = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, entry.mode)
    return hashlib.sha256(repr((str(entry.source.resolve()), facts)).encode(errors="surrogateescape")).hexdigest()


def _file_hash(path: Path) -> str:
    # hashlib.file_digest is Python 3.11's.
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            found.update(chunk)
    return found.hexdigest()


def _hash(parts: Mapping[str, str]) -> str:
    found = hashlib.sha256()
    for name, value in sorted(parts.items()):
        # Lengths first: no two lists of parts read the same.
        found.update(f"{len(name)} {len(value)} {name}{value}".encode(errors="surrogateescape"))
    return found.hexdigest()[:LENGTH]
