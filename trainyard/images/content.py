"""The name of what is in an image: a hash over all that its build depends on.

A packaged game has gigabytes, and an unchanged build must be quick: digests of large files are kept, under all that
changes with a file's content (git's index relies on the same). What is lost is computed again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from trainyard import paths, versions
from trainyard.errors import RequestError
from trainyard.images import catalog, context
from trainyard.images.context import Entry
from trainyard.images.types import Image

LENGTH = 12
# Changes when an image is built in another way from the same files.
RECIPE = "2"
# Below, reading a file again is as quick as looking it up.
LARGE = 16 * 1024 * 1024


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
    files = {f"entry {entry.path}": _cached(entry, cache) for entry in context.entries(image)}
    fixed = {
        "recipe": RECIPE,
        "ray": versions.RAY,
        "platform": platform or "",
        "dockerfile": context.dockerfile(image),
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
