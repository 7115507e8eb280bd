"""Programs that a command runs: their lines arrive at once, and no process of theirs is left."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.real.yard import wait_until
from trainyard.errors import PrerequisiteError
from trainyard.seams import programs

pytestmark = pytest.mark.core

ENV = dict(os.environ)


def test_lines_are_handed_over_while_the_program_runs() -> None:
    seen: list[tuple[str, float]] = []
    ended = programs.run(
        ["sh", "-c", "echo first; sleep 1; echo second >&2; exit 3"],
        env=ENV,
        on_line=lambda line: seen.append((line, time.monotonic())),
    )
    assert ended == programs.Ended(3, ("first", "second"))
    assert [line for line, _ in seen] == ["first", "second"]
    assert seen[1][1] - seen[0][1] > 0.5


def test_input_of_a_program_can_be_larger_than_a_pipe_buffer() -> None:
    content = b"x" * 1_000_000
    assert programs.run(["wc", "-c"], env=ENV, stdin=content).tail == ("1000000",)


def test_a_program_that_does_not_read_its_input_is_no_error() -> None:
    assert programs.run(["true"], env=ENV, stdin=b"x" * 1_000_000).code == 0


def test_a_program_that_takes_too_long_is_interrupted() -> None:
    ended = programs.run(["sleep", "600"], env=ENV, seconds=0.5)
    assert ended.code == -signal.SIGINT


def test_ctrl_c_ends_the_children_of_a_program(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 300 & echo $! > {pids}; echo ready; wait"
    main_thread = threading.main_thread().ident
    assert main_thread is not None

    with pytest.raises(KeyboardInterrupt):
        programs.run(
            ["bash", "-c", script],
            env=ENV,
            on_line=lambda line: (
                signal.pthread_kill(main_thread, signal.SIGINT) if line == "ready" else None
            ),
        )

    sleeper = int(pids.read_text())
    wait_until(
        lambda: not psutil.pid_exists(sleeper) or _is_zombie(sleeper),
        seconds=20,
        what="the sleeper ended",
    )


def test_a_program_that_is_not_installed_is_named_with_the_way_to_have_it() -> None:
    with pytest.raises(PrerequisiteError) as refused:
        programs.find("no-such-program", ENV, hint="Install it.")
    assert refused.value.lines() == ["no-such-program is not installed", "  -> Install it."]
    assert (
        programs.find(
            Path(sys.executable).name, {"PATH": str(Path(sys.executable).parent)}, hint=""
        )
        == sys.executable
    )


def _is_zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
