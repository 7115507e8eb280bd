"""Reads the scalars of a TensorBoard event file that grows.

A file is a sequence of records (TFRecord): length, its checksum, the event, its
checksum, all little-endian. An event is a protocol buffer
(tensorflow/core/util/event.proto). This module reads the few fields that
scalars need, without a library.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO

# Bytes. Larger records hold images, histograms or text, and are skipped; a scalar takes about 50.
_LARGEST = 64 * 1024
# tensorflow/core/framework/types.proto
_FLOAT = 1
_DOUBLE = 2
_SIZES = {1: 8, 5: 4}  # by wire type, the bytes of a field with a fixed size
_LONGEST_VARINT = 10  # bytes of a 64-bit number, with 7 bits in each byte
_LARGEST_STEP = 2**64


def scalars(file: BinaryIO) -> Iterator[tuple[str, float, float, float]]:
    """Yield (tag, step, value, seconds since 1970) from the file's position on.

    Afterwards, the position is after the last complete record, so that the next
    call reads an incomplete record again. A damaged record is skipped.
    """
    size = os.fstat(file.fileno()).st_size
    while file.tell() + 12 <= size:
        begin = file.tell()
        end = begin + 16 + int.from_bytes(file.read(12)[:8], "little")
        if end > size:
            file.seek(begin)
            return

        record = b""
        if end - begin <= _LARGEST:
            record = file.read(end - 4 - file.tell())
        file.seek(end)
        try:
            yield from _scalars(record)
        except (KeyError, IndexError, ValueError, struct.error):
            continue


def _scalars(record: bytes) -> Iterator[tuple[str, float, float, float]]:
    event = dict(_fields(record))
    if 5 not in event:
        return

    time = 0.0
    if 1 in event:
        (time,) = struct.unpack("<d", event[1])

    for number, entry in _fields(event[5]):
        if number != 1:
            continue
        fields = dict(_fields(entry))
        value = _value(fields)
        if value is not None:
            step = int.from_bytes(event.get(2, b""), "little")
            if step >= _LARGEST_STEP:
                raise ValueError("the step is no number of 64 bits")
            yield fields[1].decode("utf-8", "replace"), float(step), value, time


def _value(entry: dict[int, bytes]) -> float | None:
    """Return a summary value's number; None if it is no scalar.

    PyTorch and tensorboardX write a plain number, TensorFlow 2 a tensor.
    """
    if 2 in entry:
        return float(struct.unpack("<f", entry[2])[0])

    metadata = dict(_fields(entry.get(9, b"")))
    plugin = dict(_fields(metadata.get(1, b""))).get(1, b"")
    if plugin not in (b"", b"scalars"):
        return None

    tensor = dict(_fields(entry.get(8, b"")))
    content = tensor.get(4) or tensor.get(5) or tensor.get(6) or b""
    kind = int.from_bytes(tensor.get(1, b""), "little")
    if kind == _FLOAT and len(content) == 4:
        return float(struct.unpack("<f", content)[0])
    if kind == _DOUBLE and len(content) == 8:
        return float(struct.unpack("<d", content)[0])
    return None


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and content of each field of a message.

    A varint becomes little-endian bytes.
    """
    at = 0
    while at < len(message):
        key, at = _whole(message, at)
        kind = key & 7
        if kind == 0:
            number, at = _whole(message, at)
            yield key >> 3, number.to_bytes(_LONGEST_VARINT, "little")
            continue
        if kind == 2:
            size, at = _whole(message, at)
        else:
            size = _SIZES[kind]
        yield key >> 3, message[at : at + size]
        at += size


def _whole(message: bytes, at: int) -> tuple[int, int]:
    """Return the varint (a whole number) at an offset, and the offset after it.

    Raises IndexError if the message ends within the varint, ValueError if the
    varint is too long.
    """
    number = message[at]
    if number < 128:  # most keys and lengths have one byte
        return number, at + 1
    number = number & 127
    shift = 7
    while (byte := message[at := at + 1]) >= 128:
        number |= (byte & 127) << shift
        shift += 7
        if shift == 7 * _LONGEST_VARINT:
            raise ValueError("the varint is too long")
    return number | byte << shift, at + 1
