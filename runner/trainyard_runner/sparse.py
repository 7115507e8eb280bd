"""Sparse files in archives: GNU's tar format 1.0, which `tarfile` reads."""

from __future__ import annotations

import errno
import os
import tarfile

_BLOCK = 512


def segments(descriptor: int, size: int) -> list[tuple[int, int]]:
    """Return where a file has data, each as (offset, length)."""
    found: list[tuple[int, int]] = []
    at = 0
    while at < size:
        try:
            start = min(size, os.lseek(descriptor, at, os.SEEK_DATA))
            at = min(size, os.lseek(descriptor, start, os.SEEK_HOLE))
        except OSError as error:
            return found if error.errno == errno.ENXIO else [(0, size)]  # only a hole follows; cannot be asked
        found.append((start, at - start))
    return found


def extended_header(name: str, size: int) -> bytes:
    """Return what stands before the header of a sparse file: its name and size."""
    fields = {"major": "1", "minor": "0", "name": name, "realsize": str(size)}
    records = b"".join(_record(f"GNU.sparse.{key}={value}\n") for key, value in fields.items())
    header = tarfile.TarInfo("././@PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, len(records)
    return header.tobuf(tarfile.USTAR_FORMAT) + _padded(records)


def extents(segments: list[tuple[int, int]], size: int) -> bytes:
    """Return what stands before the data: where each piece of it belongs, and where the file ends."""
    listed = [*segments, (size, 0)]
    return _padded("".join([f"{len(listed)}\n", *(f"{offset}\n{length}\n" for offset, length in listed)]).encode())


def _record(text: str) -> bytes:
    """Return a record of an extended header: its length, which counts its own digits, and its text."""
    content = text.encode("utf-8", "surrogateescape")
    length = len(content) + 2
    while len(str(length)) + 1 + len(content) != length:
        length += 1
    return b"%d %s" % (length, content)


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % _BLOCK)
