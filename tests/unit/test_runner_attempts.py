"""An attempt's life without its files: retries, losses, output, the guard, events, names."""

from __future__ import annotations

import json
import mmap
import os
from pathlib import Path
from typing import Any

import pytest
from ray import exceptions
from trainyard_runner.head import losses
from trainyard_runner.head.job_log import JobLog
from trainyard_runner.head.records import AttemptRecord, Records
from trainyard_runner.head.units import MOST_LOSSES, Unit
from trainyard_runner.node import proctree
from trainyard_runner.node.output import CHUNK, OutputBuffer
from trainyard_runner.wire import names
from trainyard_runner.wire.events import AttemptEnded, Note, TaskOutput
from trainyard_runner.wire.plan import Task
from trainyard_runner.wire.stream import EventStream


def task(name: str = "t", *, retries: int = 0) -> Task:
    return Task(index=0, name=name, command=("true",), env={}, retries=retries)


def tried(unit: Unit, *outcomes: str, is_final: bool = False) -> bool:
    unit.begin()
    for tried_task, outcome in zip(unit.tasks, outcomes, strict=True):
        unit.ended(tried_task, outcome, is_final=is_final)
    return unit.may_try_again()


def test_a_failure_uses_a_retry_and_a_lost_node_none_but_not_for_ever() -> None:
    unit = Unit((task(retries=1),))
    assert [tried(unit, "failed"), tried(unit, "timeout")] == [True, False]
    assert unit.states() == {"t": "failed"}
    lost = Unit((task(),))
    assert all(tried(lost, "lost") for _ in range(MOST_LOSSES))
    assert not tried(lost, "lost")
    assert lost.states() == {"t": "failed"}


def test_success_a_stop_and_what_cannot_get_better_are_not_tried_again() -> None:
    unit = Unit((task(retries=5),))
    assert not tried(unit, "succeeded")
    assert not tried(unit, "stopped")
    assert not tried(unit, "failed", is_final=True)


def test_a_gang_is_judged_by_the_first_that_failed() -> None:
    first, second = task("a", retries=1), task("b")
    unit = Unit((first, second))
    unit.begin()
    unit.ended(first, "failed")
    assert not unit.is_over
    unit.ended(second, "stopped")
    assert unit.is_over
    assert unit.may_try_again()
    assert not tried(unit, "failed", "stopped")
    assert unit.states() == {"a": "failed", "b": "stopped"}


INSTALLER = """\
Failed to set up runtime environment.
  File "pip.py", line 252, in _install
Last 50 lines of stdout:
    Looking in links: somewhere
    ERROR: No matching distribution found for nothing==1.0
"""
CRASHED, OUT_OF_MEMORY = exceptions.WorkerCrashedError(), exceptions.OutOfMemoryError("killed")


@pytest.mark.parametrize(
    ("error", "known", "outcome", "reason"),
    [
        (CRASHED, {"node_is_alive": False}, "lost", "node gpu-0 died"),
        (CRASHED, {}, "lost", "Ray's worker process on gpu-0 ended (WorkerCrashedError)"),
        (CRASHED, {"node": None, "node_is_alive": False}, "lost", "its node died"),
        # Ray lists it for a while.
        (exceptions.NodeDiedError("gone"), {}, "lost", "node gpu-0 died"),
        (OUT_OF_MEMORY, {}, "failed", "gpu-0 ran out of memory, and Ray ended the task"),
        (
            OUT_OF_MEMORY,
            {"is_alone": False},
            "lost",
            "gpu-0 ran out of memory, and Ray ended the task",
        ),
        (exceptions.TaskCancelledError(), {}, "stopped", "it had not started yet"),
    ],
)
def test_errors_of_ray_become_an_outcome_and_a_reason_in_words(
    error: Exception, known: dict[str, Any], outcome: str, reason: str
) -> None:
    ending = losses.explain(error, **{"node": "gpu-0", "node_is_alive": True, **known})
    assert (ending.outcome, ending.reason) == (outcome, reason)


def test_a_failed_installation_fails_once_with_the_installer_s_words() -> None:
    ending = losses.explain(
        exceptions.RuntimeEnvSetupError(INSTALLER), node=None, node_is_alive=True
    )
    last = "ERROR: No matching distribution found for nothing==1.0"
    assert ending.reason == f"its runtime_env could not be set up: {last}"
    assert ending.is_final
    assert ending.tail == ("Looking in links: somewhere", last)


@pytest.mark.parametrize(
    ("is_stopping", "culprit", "ending"),
    [
        (True, None, ("stopped", "the run was stopped")),
        (False, "a", ("stopped", "stopped together with 'a'")),
        (False, None, ("lost", "its worker ended without a report")),
    ],
)
def test_a_worker_that_ends_silently_was_stopped_if_a_stop_was_requested(
    is_stopping: bool, culprit: str | None, ending: tuple[str, str]
) -> None:
    explained = losses.unsaid(node=None, is_stopping=is_stopping, culprit=culprit)
    assert (explained.outcome, explained.reason) == ending


def printed(*chunks: bytes) -> OutputBuffer:
    """Return a buffer that has read what a command printed before it ended."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    buffer = OutputBuffer()
    for chunk in chunks:
        os.write(writer, chunk)
        assert buffer.read(reader, len(chunk))
    os.close(writer)
    assert not buffer.read(reader, 100)
    os.close(reader)
    return buffer


def test_the_start_of_a_line_waits_once_for_its_rest() -> None:
    buffer = printed(b"one\ntw")
    assert [buffer.take(), buffer.take()] == [[("output", b"one\n")], [("output", b"tw")]]


def test_a_line_of_the_runner_stands_on_a_line_of_its_own() -> None:
    for before, after in ((b"one\n", b"one\nours\n"), (b"one", b"one\nours\n")):
        buffer = printed(before)
        buffer.add("ours")
        assert buffer.take() == [("output", after)]
        buffer.add("ours")
        assert buffer.take() == [("output", b"ours\n")]


def test_everything_is_taken_at_the_end_and_the_tail_kept() -> None:
    buffer = printed(b"".join(b"line %d\n" % number for number in range(30)) + b"no end")
    assert b"".join(chunk for _, chunk in buffer.take(everything=True)).endswith(b"line 29\nno end")
    assert buffer.tail() == [*(f"line {number}" for number in range(11, 30)), "no end"]


def test_a_chunk_is_never_larger_than_it_may_be() -> None:
    chunks = [chunk for _, chunk in printed(*[b"x" * 60_000] * 10).take(everything=True)]
    assert max(map(len, chunks)) <= CHUNK
    assert sum(map(len, chunks)) == 600_000


def test_files_open_for_writing_are_told_from_those_open_for_reading(tmp_path: Path) -> None:
    read = tmp_path / "read"
    read.write_text("x")
    with (tmp_path / "written").open("w"), (tmp_path / "both").open("w+"), read.open():
        written = proctree.files_written([os.getpid()], str(tmp_path))
    assert written == {str(tmp_path / "written"), str(tmp_path / "both")}


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system has no /proc")
def test_writable_mappings_are_told_from_files_that_a_process_reads(tmp_path: Path) -> None:
    for name in ("shared", "new\nline", "private", "read"):
        (tmp_path / name).write_text("x")

    ways = {
        "shared": mmap.ACCESS_WRITE,
        "new\nline": mmap.ACCESS_WRITE,
        "private": mmap.ACCESS_COPY,
    }

    maps = []
    for name in ("shared", "new\nline", "private", "read"):
        with (tmp_path / name).open("r+b") as file:
            maps.append(mmap.mmap(file.fileno(), 0, access=ways.get(name, mmap.ACCESS_READ)))

    written = proctree.files_written([os.getpid()], str(tmp_path), mapped_only=True)
    for one in maps:
        one.close()

    assert written == {str(tmp_path / "shared"), str(tmp_path / "new\nline")}


def test_a_process_that_has_just_ended_need_not_be_aborted() -> None:
    proctree.abort(2**22 + 1)  # larger than any of Linux


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_events_are_numbered_without_gaps_and_each_segment_names_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard_runner.wire.stream.ROLL_AT", 200)
    stream = EventStream(tmp_path, clock=lambda: 5.0)
    for number in range(10):
        stream.write(Note(f"number {number}"))
    stream.close()
    segments = [events(path) for path in sorted(tmp_path.glob("*.jsonl"))]
    written = [event for segment in segments for event in segment]
    assert [event["seq"] for event in written] == list(range(len(written)))
    assert [event["text"] for event in written if event["event"] == "note"] == [
        f"number {n}" for n in range(10)
    ]
    following = [segment[-1]["next"] for segment in segments[:-1]]
    assert following == [names.segment(number) for number in range(1, len(segments))] != []


def test_bytes_that_are_no_text_survive_and_are_read_from_an_open_stream(tmp_path: Path) -> None:
    text = b"\xff\xfe ok \xc3".decode("utf-8", "surrogateescape")
    EventStream(tmp_path).write(TaskOutput("a", 1, at=0, text=text))
    (event,) = events(tmp_path / "stream.000000.jsonl")
    assert event["text"].encode("utf-8", "surrogateescape") == b"\xff\xfe ok \xc3"


def test_a_safe_name_stays_and_any_other_becomes_safe_with_a_mark() -> None:
    for name in ("train", "seed=0,lr=0.1", "a+b_c-d.e", "x" * 100):
        assert names.file_stem(name) == name

    odd = [
        "a/b",
        "../up",
        "a b",
        "größe",
        "x" * 101,
        "x" * 102,
        "",
        "a\nb",
        "\udc80",
        ".",
        "..",
        ".hidden",
    ]

    stems = [names.file_stem(name) for name in odd]
    assert len({*stems, *odd}) == 2 * len(odd)
    assert not [stem for stem in stems if "/" in stem or stem.startswith(".") or len(stem) > 109]


def test_very_many_values_of_a_metric_are_several_events(tmp_path: Path) -> None:
    stream = EventStream(tmp_path)
    records = Records(
        tmp_path, stream, node="head", node_name=str, each_attempt=False, job_log=JobLog("rl-1")
    )
    heard: list[list[float]] = []
    records.on_metric = lambda _, values: heard.extend(values)
    values = [[float(step), 1.7976931348623157e308, 1795500000.1234567] for step in range(25_000)]
    records.apply(AttemptRecord("a", 1), [("metric", values)])
    stream.close()
    said = [event["values"] for event in events(tmp_path / "stream.000000.jsonl")]
    assert [len(some) for some in said] == [10_000, 10_000, 5000]
    assert [value for some in said for value in some] == heard == values


def test_an_oversized_event_has_its_texts_and_lists_cut(tmp_path: Path) -> None:
    stream = EventStream(tmp_path, clock=lambda: 5.0)
    stream.write(
        AttemptEnded(
            "a",
            1,
            outcome="failed",
            reason="x" * (17 * 1024 * 1024),
            tail=["y"] * 5000,
            exit_code=0,
            output={"file": "z" * 2000},
        )
    )
    stream.close()
    (event,) = events(tmp_path / "stream.000000.jsonl")

    assert (event["seq"], event["time"], event["event"]) == (0, 5.0, "attempt-ended")
    assert (event["reason"], event["tail"]) == ("x" * 1000, ["y"] * 1000)
    assert (event["exit_code"], event["output"]) == (0, {"file": "z" * 1000})
