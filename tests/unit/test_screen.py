"""Tasks' output is shown in whole lines, by name, and cannot harm a terminal or a log."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from trainyard_runner.wire.events import AttemptEnded

import trainyard
from tests.run_events import an_event
from trainyard.console import command_hints
from trainyard.console.run_screen import PrintedScreen, plain, prefixed
from trainyard.results.state import RunState
from trainyard.results.sweep import Sweep


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (b"loss 0.1\n", "loss 0.1\n"),
        ("größe\n".encode(), "größe\n"),
        (b"tab\tstays\n", "tab\tstays\n"),
        (b"\x1b[31mred\x1b[0m\n", "red\n"),
        (b"\x1b]0;title\x07\x1b[2J\x1b[1;1Hgone\n", "gone\n"),
        (b"10%\r50%\r100%\n", "100%\n"),
        (b"first\n10%\r50%\r100%\r\nlast\n", "first\n100%\nlast\n"),
        (b"windows\r\n", "windows\n"),
        ("b\u202eackwards\u2069\u200f\n".encode(), "backwards\n"),
        (b"50%\r\n", "50%\n"),
        (b"bell\x07 null\x00 \xc2\x9bcsi\n", "bell null csi\n"),
        (b"\xff\n", "\ufffd\n"),
    ],
)
def test_a_pipe_gets_no_control_characters(printed: bytes, shown: str) -> None:
    assert plain(printed) == shown


def test_a_line_of_a_megabyte_beside_one_that_is_redrawn_is_shown_at_once() -> None:
    line = "x" * 1_000_000
    # A search that restarts at each of its characters would take 20 minutes.
    assert plain(f"10%\r20%\n{line}\n".encode()) == f"20%\n{line}\n"


def test_a_terminal_keeps_colours_and_nothing_else() -> None:
    assert (
        plain(b"\x1b[1;31mred\n\x1b[2Jgone\n", colours=True)
        == "\x1b[1;31mred\x1b[0m\ngone\x1b[0m\n"
    )


def test_unfinished_lines_wait_and_endless_ones_are_shown_in_pieces() -> None:
    stream = io.StringIO()
    screen = PrintedScreen(stream)
    for task, text in (
        ("a", b"one\ntw"),
        ("b", b"other\nmore\n"),
        ("a", b"o\n"),
        ("c", b"x" * 70_000),
    ):
        screen.output(task, text)
    assert stream.getvalue() == f"[a] one\n[b] other\n[b] more\n[a] two\n[c] {'x' * 70_000}\n"


def run_of_two() -> RunState:
    state = RunState(run="job-1", cluster="lab", job="job", tasks=["a", "b"])
    state.apply(an_event("attempt-started", task="a", attempt=1, node="head", time=1.0))
    return state


def test_a_pipe_sees_lines_of_tasks_and_what_happened() -> None:
    stream = io.StringIO()
    screen = PrintedScreen(stream)
    state = run_of_two()
    screen.output("a", b"epoch 1\nepo")

    lost = AttemptEnded("a", 1, "lost", node="gpu-0", reason="its node died")
    screen.event(lost, state)
    state.apply(an_event("task-ended", task="a", state="failed", time=2.0))
    screen.event(an_event("task-ended", task="a", state="failed"), state)

    assert stream.getvalue().splitlines() == [
        "[a] epoch 1",
        "[a] epo",
        "[a] attempt 1 was lost on gpu-0: its node died",
        "[a] failed (1/2)",
    ]


def test_a_failed_gate_names_each_failed_rung_and_its_way_out() -> None:
    stream = io.StringIO()
    state = run_of_two()
    good = an_event("check", name="disk", node="head", ok=True, detail="9 GiB", skipped=False)

    hint = "Restart the driver."
    bad = an_event("check", name="gpus", node="gpu-0", ok=False, detail="1 of 2 GPUs", hint=hint)
    for check in (good, bad):
        state.apply(check)

    PrintedScreen(stream).event(an_event("gate", ok=False, seconds=1.0), state)
    assert stream.getvalue().splitlines() == [
        "smoke: 1 of 2 checks failed, 1.0 s",
        "  FAILED  gpus on gpu-0: 1 of 2 GPUs",
        "          -> Restart the driver.",
    ]


def test_a_terminal_has_a_bar_that_makes_way_for_lines() -> None:
    stream = Terminal()
    screen = PrintedScreen(stream)
    screen.tick(run_of_two())
    assert "0/2" in stream.getvalue()
    assert "1 running" in stream.getvalue()
    screen.output("a", b"epoch 1\n")
    screen.close()
    assert stream.getvalue().split("\r\x1b[2K")[-1].endswith("[a]\x1b[0m epoch 1\n")


@pytest.mark.parametrize(
    ("outcome", "node", "reason", "shown"),
    [
        ("stopped", None, "the run was stopped", "[a] attempt 1 was stopped: the run was stopped"),
        ("lost", None, None, "[a] attempt 1 was lost"),
        ("timeout", "gpu-1", "it took 2 s", "[a] attempt 1 ran out of time on gpu-1: it took 2 s"),
        ("failed", "gpu-1", "exit code 3", "[a] attempt 1 failed on gpu-1: exit code 3"),
    ],
)
def test_the_end_of_an_attempt_is_a_sentence(
    outcome: str, node: str | None, reason: str | None, shown: str
) -> None:
    event = an_event(
        "attempt-ended", task="a", attempt=1, node=node, outcome=outcome, reason=reason
    )
    stream = io.StringIO()
    PrintedScreen(stream).event(event, run_of_two())
    assert stream.getvalue() == f"{shown}\n"


def test_an_attempt_that_its_sweep_ends_is_told_by_its_trial() -> None:
    event = an_event(
        "attempt-ended", task="a", attempt=1, outcome="stopped", reason="trial 4: worse"
    )
    stream, state = io.StringIO(), run_of_two()
    state.sweep = Sweep({"mode": "max"})
    PrintedScreen(stream).event(event, state)
    assert stream.getvalue() == ""


def test_a_wait_is_printed_once_and_not_again_when_only_numbers_differ() -> None:
    stream = io.StringIO()
    screen = PrintedScreen(stream)
    for again in (False, True):
        screen.event(an_event("waiting", again=again, text="1 task waits for 1 CPU"), run_of_two())
    assert stream.getvalue() == "-- 1 task waits for 1 CPU\n"


def test_nothing_is_printed_past_what_shows_escapes() -> None:
    code = {path: path.read_text() for path in Path(trainyard.__file__).parent.rglob("*.py")}
    printing = {
        path.name for path, text in code.items() if re.search(r"^ *print\(", text, re.MULTILINE)
    }
    # the keeper's own log, and what a node's Python is asked
    assert printing == {"report.py", "keeper.py", "machine.py"}


def test_a_terminal_shows_the_escapes_of_names_and_notes() -> None:
    stream = Terminal()
    PrintedScreen(stream).note("a\x1b[2Jb")
    assert stream.getvalue() == "\x1b[2m-- a\\u001b[2Jb\x1b[0m\n"
    assert prefixed("a\x9b\ud800", "x\n") == "[a\\u009b\\ud800] x\n"


def test_a_note_repeats_the_typed_flags_and_output_is_unchanged() -> None:
    command_hints.remember("train.dispatch", {"file": ["lab"]})
    stream = io.StringIO()
    screen = PrintedScreen(stream)
    screen.note("see `trainyard cluster.up`")
    screen.output("a", b"trainyard cluster.up\n")
    assert stream.getvalue() == "-- see `trainyard cluster.up -f lab`\n[a] trainyard cluster.up\n"


def test_no_bar_is_drawn_once_a_run_has_ended_or_is_no_longer_followed() -> None:
    stream, state = Terminal(), run_of_two()
    screen = PrintedScreen(stream)
    screen.tick(state)
    screen.erase()
    assert stream.getvalue().endswith("\r\x1b[2K")
    ended = an_event("run-ended", time=3.0, state="succeeded", exit=0, seconds=1.0)
    state.apply(ended)
    before = stream.getvalue()
    screen.event(ended, state)
    screen.tick(state)
    assert stream.getvalue() == before
