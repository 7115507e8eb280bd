"""Output in chunks: whole lines where that costs no time, never more than a chunk, nothing lost."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from trainyard_runner.output import CHUNK, OutputBuffer


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    yield reader, writer
    os.close(reader)


def test_the_start_of_a_line_waits_once_for_its_rest(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    buffer = OutputBuffer()
    os.write(writer, b"one\ntw")
    assert buffer.read(reader, 100)
    assert buffer.take() == [("output", b"one\n")]
    assert buffer.take() == [("output", b"tw")]
    os.close(writer)
    assert not buffer.read(reader, 100)


def test_everything_is_taken_at_the_end_and_the_tail_kept(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    buffer = OutputBuffer()
    os.write(writer, b"".join(b"line %d\n" % number for number in range(30)) + b"no end")
    buffer.read(reader, 10_000)
    os.close(writer)
    taken = b"".join(chunk for _, chunk in buffer.take(everything=True))
    assert taken.endswith(b"line 29\nno end")
    assert buffer.tail() == [*(f"line {number}" for number in range(11, 30)), "no end"]


def test_a_chunk_is_never_larger_than_it_may_be(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    buffer = OutputBuffer()
    written = 0
    for _ in range(10):
        written += os.write(writer, b"x" * 60_000)
        buffer.read(reader, 60_000)
    os.close(writer)
    chunks = [chunk for _, chunk in buffer.take(everything=True)]
    assert max(map(len, chunks)) <= CHUNK
    assert sum(map(len, chunks)) == written
