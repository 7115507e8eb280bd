"""What a build sees: the image's directory and what image.yaml adds, as one list and one stream.

The hash of an image and the bytes that the builder gets come from the same list: they cannot disagree.
"""

from __future__ import annotations

import re
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO

from trainyard.errors import Problem, RequestError
from trainyard.images.types import Image
from trainyard.seams.docker import build as docker_build
from trainyard.spec.load import IMAGE_FILE_NAME

DOCKERFILE = "Dockerfile"
# Files get one date, or the same code would be another layer in every checkout. Not 1970: ZIP (wheels) starts in 1980.
DATE = 946_684_800
# Where a Dockerfile uses the base that it is given; a comment is no use.
_BASE = re.compile(r"^(?!\s*#).*\$(?:BASE\b|\{BASE\b)", re.MULTILINE)


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
