"""A run's stream is taken in once, in order, after any number of reads and kills."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from trainyard_runner.wire.events import Metric, RunEnded

from trainyard.errors import OutsideError
from trainyard.results import journal as journals
from trainyard.results import store
from trainyard.results.journal import Journal, Output
from trainyard.results.store import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    record = {"run": "job-1", "cluster": "lab", "job": "job", "tasks": ["a", "b"]}
    return store.create(tmp_path, record, cluster="name: lab\n", job="")


def line(seq: int, event: str, **fields: Any) -> bytes:
    return json.dumps({"seq": seq, "time": 1.0, "event": event, **fields}).encode() + b"\n"


def output(seq: int, text: str, *, at: int, task: str = "a") -> bytes:
    return line(seq, "output", task=task, attempt=1, at=at, text=text)


STREAM = [
    line(0, "run-started", node_id="n"),
    output(1, "one\n", at=0),
    line(2, "attempt-started", task="b", attempt=1),
    output(3, "two\n", at=4),
    output(4, "b\n", at=0, task="b"),
    line(5, "run-ended", state="succeeded", exit=0, seconds=1.0),
]


def take_in(run: RunDirectory, lines: list[bytes]) -> list[bytes]:
    """Apply lines as one process would; return the output that was new to it."""
    journal = Journal(run)
    try:
        return [new.text for new in map(journal.apply, lines) if isinstance(new, Output)]
    finally:
        journal.close()


def recorded(run: RunDirectory) -> tuple[list[int], str, str]:
    return (
        [event.seq for event in journals.recorded(run)],
        run.log("a", 1).read_text(),
        run.log("b", 1).read_text(),
    )


WHOLE = ([0, 2, 5], "one\ntwo\n", "b\n")


@pytest.mark.parametrize("killed_after", range(len(STREAM) + 1))
def test_a_stream_is_read_again_without_gap_or_repeat_after_a_kill(
    run: RunDirectory, killed_after: int
) -> None:
    first = take_in(run, STREAM[:killed_after])
    second = take_in(run, STREAM)
    assert first + second == [b"one\n", b"two\n", b"b\n"]
    assert recorded(run) == WHOLE


def test_a_line_and_a_log_that_were_cut_in_the_middle_are_completed(run: RunDirectory) -> None:
    take_in(run, STREAM[:4])
    run.events.write_bytes(run.events.read_bytes() + STREAM[5][:20])
    run.log("a", 1).write_bytes(b"one\ntw")
    assert take_in(run, STREAM) == [b"o\n", b"b\n"]
    assert recorded(run) == WHOLE


def test_a_missing_line_is_an_error(run: RunDirectory) -> None:
    with pytest.raises(OutsideError) as caught:
        take_in(run, [STREAM[0], STREAM[2]])
    assert str(caught.value) == (
        "the run's stream has a gap: line 1 is missing, line 2 came instead\n"
        "  -> Try once more: trainyard train.logs job-1"
    )


def test_missing_output_is_an_error(run: RunDirectory) -> None:
    with pytest.raises(
        OutsideError, match=r"a\.1\.log has a gap: 5 bytes are missing before offset 5"
    ):
        take_in(run, [STREAM[0], output(1, "late\n", at=5)])


def test_bytes_that_are_not_text_come_back_as_they_were(run: RunDirectory) -> None:
    raw = b"\xff\xfe caf\xc3\xa9 \xf0\x9f"
    take_in(run, [output(0, raw.decode("utf-8", "surrogateescape"), at=0)])
    assert run.log("a", 1).read_bytes() == raw


def test_finished_segments_are_counted_for_the_next_reader(run: RunDirectory) -> None:
    take_in(
        run,
        [
            line(0, "run-started"),
            line(1, "continues", next="stream.000001.jsonl"),
            line(2, "note", text="x"),
        ],
    )
    journal = Journal(run)
    assert journal.segment == 1
    journal.close()


def test_a_second_reader_sees_the_same_and_writes_nothing(run: RunDirectory) -> None:
    recorder = Journal(run)
    for given in STREAM[:3]:
        recorder.apply(given)
    looking_on = Journal(run)
    assert not looking_on.recording
    shown = [new for new in map(looking_on.apply, STREAM) if new is not None]
    assert [new.text for new in shown if isinstance(new, Output)] == [b"two\n", b"b\n"]
    assert [event.seq for event in journals.recorded(run)] == [0, 2]
    looking_on.close()
    recorder.close()


def test_a_run_whose_runner_died_gets_an_end(run: RunDirectory) -> None:
    journal = Journal(run)
    journal.apply(STREAM[0])
    journal.end_for("the runner died", state="failed", exit_code=6, seconds=1.0, hint=None)
    journal.close()
    *_, last = journals.recorded(run)
    assert isinstance(last, RunEnded)
    assert (last.exit, last.by, last.seq) == (6, "operator", 1)


def test_a_study_continues_the_former_run_s_however_often_it_is_read(run: RunDirectory) -> None:
    store.keep_study(run, "former\n")
    lines = [
        line(0, "study", at=7, text="one\n"),
        line(1, "study", at=11, text="two\n"),
        line(2, "note", text="x"),
    ]
    take_in(run, lines[:1])
    take_in(run, lines)
    take_in(run, lines)
    assert run.study.read_text() == "former\none\ntwo\n"
    assert [event.seq for event in journals.recorded(run)] == [2]


def test_a_run_is_shown_where_nothing_is_writable_and_the_reason_is_known(
    run: RunDirectory,
) -> None:
    (run.path / ".lock").mkdir()
    journal = Journal(run)
    assert not journal.recording
    assert journal.problem

    assert journal.problem.lines() == [
        "results cannot be written: is a directory",
        f"  at {run.path}",
        ("  -> The run continues. When the directory is writable again: trainyard train.logs RUN"),
    ]

    assert [
        new.kind for new in map(journal.apply, STREAM[:1]) if not isinstance(new, Output) and new
    ] == ["run-started"]

    assert list(journals.recorded(run)) == []
    journal.close()


@pytest.mark.parametrize("stolen", ["events.jsonl", "logs/a.1.log"])
def test_a_file_that_cannot_be_written_any_more_is_an_error_that_names_it(
    run: RunDirectory, stolen: str
) -> None:
    journal = Journal(run)
    (run.path / stolen).mkdir()
    with pytest.raises(OutsideError) as caught:
        list(map(journal.apply, STREAM))
    journal.close()
    assert (caught.value.what, caught.value.where) == (
        "results cannot be written: is a directory",
        str(run.path / stolen),
    )


@pytest.mark.parametrize(
    "values", [[5], [[1, 2]], [["1", 2, 3]], [[1, 10**400, 3]], [[1, True, 3]], [None], 5]
)
def test_a_metric_event_with_malformed_values_is_refused(run: RunDirectory, values: Any) -> None:
    with pytest.raises(OutsideError, match=r"^not an event of Trainyard's runner: values is "):
        take_in(run, [line(0, "metric", task="a", attempt=1, values=values)])


def test_a_step_that_is_no_finite_number_is_kept(run: RunDirectory) -> None:
    take_in(run, [line(0, "metric", task="a", attempt=1, values=[[float("inf"), 0.5, 1.0]])])
    (event,) = journals.recorded(run)
    assert isinstance(event, Metric) and event.values == [[float("inf"), 0.5, 1.0]]
