"""What `docker save` sends, read as it comes: an archive of archives, in the order of the image's layers."""

from __future__ import annotations

import json
import posixpath
import tarfile
from collections.abc import Callable, Iterator
from typing import IO, TypeVar, cast

from trainyard.errors import OutsideError

Result = TypeVar("Result")
_GZIP = b"\x1f\x8b"
_ZSTANDARD = b"\x28\xb5\x2f\xfd"
_BUFFER = 1 << 20


class UnreadableLayerError(OutsideError):
    """A layer is kept in a form that cannot be read here."""


class ByteStream:
    """Chunks of bytes, read like a file; `peek` looks ahead."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._ahead = b""

    def read(self, size: int = -1) -> bytes:
        """Return so many bytes, fewer only at the end."""
        parts = [self._ahead]
        length = len(self._ahead)
        while size < 0 or length < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            parts.append(chunk)
            length += len(chunk)
        whole = b"".join(parts)
        cut = len(whole) if size < 0 else size
        self._ahead = whole[cut:]
        return whole[:cut]

    def peek(self, size: int) -> bytes:
        """Return the next bytes, and leave them there."""
        start = self.read(size)
        self._ahead = start + self._ahead
        return start


def saved_layers(saved: ByteStream, read: Callable[[tarfile.TarFile], Result]) -> list[Result]:
    """Return what `read` makes of each layer, the base's first.

    manifest.json, which tells the order, may come last (docker <= 24) or not at the start: so every layer is read as it
    comes. Its names are NAME/layer.tar, or blobs/sha256/DIGEST beside blobs that are no layers. A layer that is there
    twice is a link. Raises UnreadableLayerError for a compression that Python does not know.
    """
    results: dict[str, Result] = {}
    links: dict[str, str] = {}
    manifest: list[dict[str, list[str]]] = []
    with tarfile.open(fileobj=cast(IO[bytes], saved), mode="r|", bufsize=_BUFFER) as outer:
        for member in outer:
            if member.issym() or member.islnk():
                base = posixpath.dirname(member.name) if member.issym() else ""
                links[member.name] = posixpath.normpath(posixpath.join(base, member.linkname))
            elif member.name == "manifest.json":
                manifest = json.load(cast(IO[bytes], outer.extractfile(member)))
            elif member.isreg() and (member.name.endswith("/layer.tar") or "/sha256/" in member.name):
                blob = ByteStream(_chunks(cast(IO[bytes], outer.extractfile(member))))
                if blob.peek(1) != b"{":
                    results[member.name] = _read_layer(blob, read)
    return [results[links.get(name, name)] for name in manifest[0]["Layers"]] if manifest else []


def _read_layer(blob: ByteStream, read: Callable[[tarfile.TarFile], Result]) -> Result:
    start = blob.peek(4)
    if start.startswith(_ZSTANDARD):
        raise UnreadableLayerError("a layer cannot be read", where="it is compressed with zstd")
    mode = "r|gz" if start.startswith(_GZIP) else "r|"
    with tarfile.open(fileobj=cast(IO[bytes], blob), mode=mode, bufsize=_BUFFER) as layer:  # type: ignore[call-overload]
        return read(layer)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(_BUFFER):
        yield chunk
