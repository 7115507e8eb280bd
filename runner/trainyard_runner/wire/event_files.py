"""Scalars of a TensorBoard event file that grows.

A file is a sequence of records (TFRecord): length, its checksum, the event, its checksum, all
little-endian. An event is a protocol buffer (tensorflow/core/util/event.proto); a scalar takes few
fields of it: a node needs no library.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO

# A scalar's record has about 50 bytes. What is larger holds images, histograms or text, and is
# passed over unread.
_LARGEST = 64 * 1024
# tensorflow/core/framework/types.proto
_FLOAT = 1
_DOUBLE = 2
_SIZES = {1: 8, 5: 4}  # of the kinds of fields that do not say theirs
_LONGEST_VARINT = 10  # bytes: 64 bits, 7 in each
_LARGEST_STEP = 2**64


def scalars(file: BinaryIO) -> Iterator[tuple[str, float, float, float]]:
    """Yield (tag, step, value, seconds since 1970) from the file's position on; leave it after the
    last whole record.

    A record that is not whole yet ends what can be read; a damaged one is passed over.
    """
    size = os.fstat(file.fileno()).st_size
    while (begin := file.tell()) + 12 <= size:
        end = begin + 16 + int.from_bytes(file.read(12)[:8], "little")
        if end > size:
            file.seek(begin)
            return

        if end - begin <= _LARGEST:
            record = file.read(end - 4 - file.tell())
        else:
            record = b""

        file.seek(end)
        try:
            yield from _scalars(record)
        except (KeyError, IndexError, ValueError, struct.error):
            continue


def _scalars(record: bytes) -> Iterator[tuple[str, float, float, float]]:
    event = dict(_fields(record))
    if 5 not in event:
        return

    if 1 in event:
        (time,) = struct.unpack("<d", event[1])
    else:
        (time,) = (0.0,)

    for number, entry in _fields(event[5]):
        fields = dict(_fields(entry)) if number == 1 else {}
        value = _value(fields)
        if value is not None:
            step = int.from_bytes(event.get(2, b""), "little")
            if step >= _LARGEST_STEP:
                raise ValueError("the step is no number of 64 bits")
            yield fields[1].decode("utf-8", "replace"), float(step), value, time


def _value(entry: dict[int, bytes]) -> float | None:
    """Return an entry's number: plain, as PyTorch and tensorboardX write it, or a tensor, as
    TensorFlow 2 does.
    """
    if 2 in entry:
        return float(struct.unpack("<f", entry[2])[0])

    plugin = dict(_fields(dict(_fields(entry.get(9, b""))).get(1, b""))).get(1, b"")
    if plugin in (b"", b"scalars"):
        tensor = dict(_fields(entry.get(8, b"")))
    else:
        tensor = {}

    content = tensor.get(4) or tensor.get(5) or tensor.get(6) or b""
    kind = {(_FLOAT, 4): "<f", (_DOUBLE, 8): "<d"}.get(
        (int.from_bytes(tensor.get(1, b""), "little"), len(content))
    )
    if kind:
        return float(struct.unpack(kind, content)[0])

    return None


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and bytes of each field of a message; of whole numbers their little-endian
    bytes.
    """
    at = 0
    while at < len(message):
        key, at = _whole(message, at)
        if (kind := key & 7) == 0:
            number, at = _whole(message, at)
            yield key >> 3, number.to_bytes(_LONGEST_VARINT, "little")
            continue
        if kind == 2:
            size, at = _whole(message, at)
        else:
            size, at = (_SIZES[kind], at)
        yield key >> 3, message[at : at + size]
        at += size


def _whole(message: bytes, at: int) -> tuple[int, int]:
    """Return the number (a varint) at an offset, and the offset after it.

    Raises IndexError where the message ends too early, ValueError where the number does not end.
    """
    number = message[at]
    if number < 128:  # most are: keys and lengths
        return number, at + 1
    number = number & 127
    shift = 7
    while (byte := message[at := at + 1]) >= 128:
        number |= (byte & 127) << shift
        shift += 7
        if shift == 7 * _LONGEST_VARINT:
            raise ValueError("the varint is too long")
    return number | byte << shift, at + 1
