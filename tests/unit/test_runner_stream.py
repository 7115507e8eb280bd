"""The event stream: no gap, no lost byte, segments that name the next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainyard_runner.stream import EventStream


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_events_are_numbered_without_a_gap_over_all_segments(tmp_path: Path) -> None:
    stream = EventStream(tmp_path, roll_at=200, clock=lambda: 5.0)
    for number in range(10):
        stream.write("note", text=f"number {number}")
    stream.close()
    segments = sorted(tmp_path.glob("*.jsonl"))
    events = [event for segment in segments for event in read(segment)]
    assert len(segments) > 1
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert [event["text"] for event in events if event["event"] == "note"] == [f"number {n}" for n in range(10)]


def test_a_full_segment_ends_with_the_name_of_the_next(tmp_path: Path) -> None:
    stream = EventStream(tmp_path, roll_at=1, clock=lambda: 5.0)
    stream.write("note", text="a")
    stream.write("note", text="b")
    stream.close()
    assert read(tmp_path / "stream.000000.jsonl")[-1] == {
        "seq": 1,
        "time": 5.0,
        "event": "continues",
        "next": "stream.000001.jsonl",
    }


def test_bytes_that_are_no_text_survive(tmp_path: Path) -> None:
    stream = EventStream(tmp_path)
    stream.write("output", text=b"\xff\xfe ok \xc3".decode("utf-8", "surrogateescape"))
    stream.close()
    (event,) = read(tmp_path / "stream.000000.jsonl")
    assert event["text"].encode("utf-8", "surrogateescape") == b"\xff\xfe ok \xc3"


def test_what_was_written_can_be_read_while_the_stream_is_open(tmp_path: Path) -> None:
    stream = EventStream(tmp_path)
    stream.write("note", text="here")
    assert read(tmp_path / "stream.000000.jsonl")[0]["text"] == "here"
