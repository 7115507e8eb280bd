"""An image's files as the build sees them: as a list, a tar stream and a hash.

Hash and stream are made of the same list, so they cannot disagree. An unchanged
build must be quick even with gigabytes of files, so digests of large files are
cached by path, inode, size and times, as in git's index.
"""

from __future__ import annotations

import hashlib
import re
import stat
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import IO

from trainyard import paths, versions
from trainyard.errors import Problem, RequestError
from trainyard.images.catalog import Image
from trainyard.seams.docker import cli
from trainyard.spec.load import IMAGE_FILE_NAME

DOCKERFILE = "Dockerfile"
# All files get this date (1 January 2000): with their own dates, each checkout would make different
# layers. Not 1970, since ZIP (wheels) has no dates before 1980.
DATE = 946_684_800
# A line of a Dockerfile, other than a comment, that uses the argument BASE.
_BASE = re.compile(r"^(?!\s*#).*\$(?:BASE\b|\{BASE\b)", re.MULTILINE)
LENGTH = 12
# Part of the hash. Increase it when Trainyard builds images from the same files in another way.
RECIPE = "2"
# Bytes. Hashing a smaller file is as quick as looking up its digest.
LARGE = 16 * 1024 * 1024


def entries(image: Image) -> dict[str, Path]:
    """Return files, links and directories by their path in the build, sorted.

    Dockerfile and image.yaml are left out. Raises RequestError if something in
    `contents:` does not exist.
    """
    sources = {path: image.directory / path for path in cli.context_files(image.directory)}
    # image.yaml only describes the image, so an edit of its text must not make a new image.
    for path in (DOCKERFILE, IMAGE_FILE_NAME):
        sources.pop(path, None)

    for path, written in image.file.contents.items():
        source = (image.directory / Path(written).expanduser()).resolve()
        if not source.exists():
            problem = Problem(
                f"{image.directory / IMAGE_FILE_NAME}: contents.{path}", f"{source} does not exist"
            )
            raise RequestError(
                f"image {image.name} lacks a part of its content", problems=(problem,)
            )

        sources[path] = source
        if source.is_dir():
            sources |= {f"{path}/{inner}": source / inner for inner in cli.context_files(source)}

    return dict(sorted(sources.items()))


def dockerfile(image: Image) -> str:
    """Read the Dockerfile.

    Raises OSError or UnicodeDecodeError, or RequestError if the Dockerfile does
    not use BASE.
    """
    path = image.directory / DOCKERFILE
    text = path.read_text(encoding="utf-8")
    if not _BASE.search(text):
        raise RequestError(
            f"the base of image {image.name} has no effect: its Dockerfile does not use it",
            where=f"{path}; {image.base} is the base that image.yaml, build.base or --base names",
            hint="Begin the Dockerfile with these two lines: ARG BASE, FROM ${BASE}",
        )
    return text


def write(image: Image, target: IO[bytes]) -> None:
    """Write the context as a tar: Dockerfile first, owner and dates fixed."""
    with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        content = dockerfile(image).encode()
        head = tarfile.TarInfo(DOCKERFILE)
        head.mtime = DATE
        head.size = len(content)
        archive.addfile(head, BytesIO(content))
        for path, source in entries(image).items():
            entry = _entry(path, source)
            if entry.isreg():
                with source.open("rb") as stream:
                    archive.addfile(entry, stream)
            else:
                archive.addfile(entry)


def _entry(path: str, source: Path) -> tarfile.TarInfo:
    """Return a tar header; as in git, the mode only marks executable files."""
    entry = tarfile.TarInfo(path)
    status = source.lstat()
    entry.mtime = DATE
    entry.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644

    if stat.S_ISLNK(status.st_mode):
        entry.type = tarfile.SYMTYPE
        entry.mode = 0o777
        entry.linkname = str(source.readlink())
    elif stat.S_ISDIR(status.st_mode):
        entry.type = tarfile.DIRTYPE
        entry.mode = 0o755
    elif stat.S_ISREG(status.st_mode):
        entry.size = status.st_size
    else:
        raise OSError(f"{source} is no file, link or directory")

    return entry


def tag(source: str, *, base: str) -> str:
    """Return an image's tag, a hash of its `source_hash` and of `base`.

    `base` is the base image's id, so that a moved tag of the base makes another
    image. While the engine lacks the base, `base` is the base's name.
    """
    return _hash({"source": source, "base": base})


def source_tag(source: str) -> str:
    """Return the tag by which clusters find the image of these files.

    It does not depend on the base's id, which is unknown on a machine without
    the base.
    """
    return f"src-{source}"


def source_hash(image: Image, environ: Mapping[str, str], *, platform: str | None = None) -> str:
    """Return the hash of an image's files and settings, without Docker.

    Images of the same hash have the same inputs, unless the tag of their base
    moved between the builds. `environ` only locates the cache of digests.
    Raises RequestError if a file cannot be read.
    """
    cache = paths.cache_home(environ) / "digests"
    parts = {f"argument {name}": value for name, value in image.arguments.items()}
    try:
        parts |= {
            f"entry {path}": _digest(source, cache) for path, source in entries(image).items()
        }
        parts["dockerfile"] = dockerfile(image)
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(
            f"a part of image {image.name} cannot be read",
            where=str(error),
            hint="Make it readable for you, or name it in the image's .dockerignore.",
        ) from error

    return _hash({**parts, "recipe": RECIPE, "ray": versions.RAY, "platform": platform or ""})


def _digest(source: Path, cache: Path) -> str:
    """Return an entry's kind, mode and hash; use the cache for large files."""
    entry = _entry("", source)
    status = source.lstat()
    if not entry.isreg():
        if entry.issym():
            return f"link {entry.linkname}"
        return "directory"
    if entry.size < LARGE:
        return f"file {entry.mode:o} {_file_hash(source)}"

    facts = (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        entry.mode,
    )

    key = repr((str(source.resolve()), facts)).encode(errors="surrogateescape")
    kept = cache / hashlib.sha256(key).hexdigest()
    with suppress(OSError):
        return kept.read_text()

    digest = f"file {entry.mode:o} {_file_hash(source)}"
    # A cache that cannot be written only costs time.
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(".part")
        part.write_text(digest)
        part.replace(kept)

    return digest


def _file_hash(path: Path) -> str:
    # Not hashlib.file_digest, which needs Python 3.11.
    content = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            content.update(chunk)
    return content.hexdigest()


def _hash(parts: Mapping[str, str]) -> str:
    whole = hashlib.sha256()
    for name, value in sorted(parts.items()):
        # With the lengths, no two different mappings give the same bytes.
        whole.update(f"{len(name)} {len(value)} {name}{value}".encode(errors="surrogateescape"))
    return whole.hexdigest()[:LENGTH]
