"""Scalars of TensorBoard event files, thinned to what a plot can show.

`tensorboard` itself would bring a web server; the protocol buffers come with tensorboardX, and around them a file is a
plain sequence of records (TFRecord): length, its checksum, the event, its checksum, all little-endian.
"""

from __future__ import annotations

import math
import os
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from trainyard_runner import tree

from trainyard.results.formats import natural

if TYPE_CHECKING:
    from tensorboardX.proto.summary_pb2 import Summary

_HEADER = struct.Struct("<QI")
_CHECKSUM_BYTES = 4
# A scalar's record has about 50 bytes. What is larger holds images, histograms or text, and is passed over unread.
_LARGEST = 64 * 1024
# How TensorFlow calls what its scalars are (tensorflow/core/framework/types.proto, DT_FLOAT).
_FLOAT = 1

Point = tuple[float, float, float]


@dataclass
class Curve:
    """One scalar over steps: evenly spread points, never more than `limit`, and the last one always."""

    limit: int
    steps: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))
    times: array[float] = field(default_factory=lambda: array("d"))
    _seen: int = 0
    _every: int = 1
    _last: Point = (-math.inf, math.nan, 0.0)

    def add(self, step: float, value: float, time: float = 0.0) -> None:
        """Take in one more point.

        A step that does not grow means that a later attempt began again there: what it repeats replaces what was.
        """
        if step <= self._last[0]:
            keep = bisect_left(self.steps, step)
            del self.steps[keep:], self.values[keep:], self.times[keep:]
        if self._seen % self._every == 0:
            self.steps.append(step)
            self.values.append(value)
            self.times.append(time)
        self._seen += 1
        self._last = (step, value, time)
        if len(self.steps) >= self.limit:
            self.steps, self.values, self.times = self.steps[::2], self.values[::2], self.times[::2]
            self._every *= 2

    def points(self) -> list[Point]:
        kept = list(zip(self.steps, self.values, self.times, strict=True))
        return kept if kept[-1:] == [self._last] else [*kept, self._last]

    @property
    def last(self) -> float:
        return self._last[1]


def read_directory(directory: Path, *, points: int, tags: int, by_attempt: bool = False) -> dict[str, dict[str, Curve]]:
    """Return the curves below a directory, by subdirectory ("" for its top) and tag.

    Files of one subdirectory are one story, in the order in which they were begun: a resumed training's files continue
    each other; with `by_attempt` also those of the same subdirectory below attempt-1/, attempt-2/ and so on. Of every
    subdirectory at most so many tags are read.
    """
    found: dict[str, dict[str, Curve]] = {}
    event_files = (directory / name for name in tree.files(str(directory)) if ".tfevents." in Path(name).name)
    for path in sorted(event_files, key=_begun):
        parts = path.parent.relative_to(directory).parts
        curves = found.setdefault("/".join(parts[1:] if by_attempt else parts), {})
        for tag, step, value, time in read_file(path):
            if tag not in curves and len(curves) >= tags:
                continue
            curves.setdefault(tag, Curve(points)).add(step, value, time)
    return {subdirectory: curves for subdirectory, curves in found.items() if curves}


def read_file(path: Path) -> Iterator[tuple[str, float, float, float]]:
    """Yield (tag, step, value, seconds since 1970) of every finite scalar in an event file.

    A record that was cut off or damaged ends the file, without an error: its writer may be at work, or was killed.
    """
    # tensorboardX brings numpy and boto3: 0.2 s, for those who have a file to read.
    from google.protobuf.message import DecodeError
    from tensorboardX.proto.event_pb2 import Event

    with path.open("rb") as file:
        for record in _records(file, size=os.fstat(file.fileno()).st_size):
            try:
                event = Event.FromString(record)
            except DecodeError:
                return
            for entry in event.summary.value:
                value = _scalar(entry)
                if value is not None and math.isfinite(value):
                    yield entry.tag, float(event.step), value, event.wall_time


def _records(file: BinaryIO, *, size: int) -> Iterator[bytes]:
    while len(header := file.read(_HEADER.size)) == _HEADER.size:
        length, _ = _HEADER.unpack(header)
        end = file.tell() + length + _CHECKSUM_BYTES
        if end > size:
            return
        if length <= _LARGEST:
            yield file.read(length)
        file.seek(end)


def _scalar(entry: Summary.Value) -> float | None:
    """Return an entry's number: plain, as PyTorch and tensorboardX write it, or a tensor, as TensorFlow 2 does."""
    kind = entry.WhichOneof("value")
    if kind == "simple_value":
        return float(entry.simple_value)
    if kind != "tensor" or entry.metadata.plugin_data.plugin_name not in ("", "scalars"):
        return None
    tensor = entry.tensor
    if tensor.dtype != _FLOAT:
        return None
    is_packed = len(tensor.tensor_content) == struct.calcsize("f")
    values: Sequence[float] = struct.unpack("<f", tensor.tensor_content) if is_packed else tensor.float_val
    return float(values[0]) if len(values) == 1 else None


def _begun(path: Path) -> tuple[list[str], int, str]:
    """Sort event files by directory and by the second in their name (events.out.tfevents.SECOND.HOST...)."""
    second = path.name.partition(".tfevents.")[2].split(".")[0]
    return natural(str(path.parent)), int(second) if second.isdecimal() else 0, path.name
