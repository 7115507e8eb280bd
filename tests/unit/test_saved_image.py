"""What `docker save` sends, in the two ways that engines arrange it."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterator

import pytest

from trainyard.seams.saved_image import ByteStream, UnreadableLayerError, saved_layers


def _archive(files: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return written.getvalue()


def _manifest(*layers: str) -> bytes:
    return json.dumps([{"Config": "config.json", "Layers": list(layers)}]).encode()


def _stream(content: bytes, size: int = 700) -> ByteStream:
    """Come in chunks that fit nothing, as an engine's do."""
    return ByteStream(content[start : start + size] for start in range(0, len(content), size))


def _names(layer: tarfile.TarFile) -> list[str]:
    return [member.name for member in layer]


BASE = _archive({"etc/passwd": b"root", "root/.netrc": b"x" * 3000})
TOP = _archive({"root/.wh..netrc": b""})


def test_layers_come_in_the_manifests_order_wherever_it_stands() -> None:
    saved = _archive(
        {
            "2/layer.tar": TOP,
            "1/layer.tar": BASE,
            "1/json": b"{}",
            "manifest.json": _manifest("1/layer.tar", "2/layer.tar"),
        }
    )
    assert saved_layers(_stream(saved), _names) == [["etc/passwd", "root/.netrc"], ["root/.wh..netrc"]]


def test_a_layer_that_is_there_twice_is_a_link() -> None:
    manifest = _manifest("1/layer.tar", "2/layer.tar")
    saved = _archive({"1/layer.tar": BASE, "manifest.json": manifest}, links={"2/layer.tar": "../1/layer.tar"})
    assert saved_layers(_stream(saved), _names) == [["etc/passwd", "root/.netrc"]] * 2


def test_blobs_that_are_no_layers_are_passed_over_and_compressed_ones_read() -> None:
    blobs = {"blobs/sha256/a": gzip.compress(BASE), "blobs/sha256/b": b'{"config": {}}', "blobs/sha256/c": TOP}
    saved = _archive({**blobs, "manifest.json": _manifest("blobs/sha256/a", "blobs/sha256/c")})
    assert saved_layers(_stream(saved), _names) == [["etc/passwd", "root/.netrc"], ["root/.wh..netrc"]]


def test_a_layer_in_zstd_is_said_to_be_unreadable() -> None:
    saved = _archive({"blobs/sha256/a": b"\x28\xb5\x2f\xfd...", "manifest.json": _manifest("blobs/sha256/a")})
    with pytest.raises(UnreadableLayerError) as raised:
        saved_layers(_stream(saved), _names)
    assert str(raised.value) == "a layer cannot be read\n  at it is compressed with zstd"


def test_a_stream_is_read_like_a_file() -> None:
    def chunks() -> Iterator[bytes]:
        yield from (b"ab", b"", b"cde", b"f")

    stream = ByteStream(chunks())
    assert [stream.peek(3), stream.read(2), stream.read(3), stream.peek(9), stream.read(), stream.read(1)] == [
        b"abc",
        b"ab",
        b"cde",
        b"f",
        b"f",
        b"",
    ]
