"""A run in Ray's own dashboard: lines of tasks, whole and with their names, up to a limit."""

from __future__ import annotations

import errno
from io import StringIO
from typing import Any

import pytest
from trainyard_runner.head import job_log
from trainyard_runner.head.job_log import JobLog


def test_lines_have_the_name_of_their_task_and_are_whole() -> None:
    shown = StringIO()
    log = JobLog("rl-1", to=shown)
    log.printed("a", "one\ntw")
    log.printed("b", "1\n")
    log.printed("a", "o\nrest")
    log.ended("a")
    log.ended("b")
    assert shown.getvalue() == "[a] one\n[b] 1\n[a] two\n[a] rest\n"


def test_a_progress_bar_is_its_last_form_and_undecodable_bytes_are_marks() -> None:
    shown = StringIO()
    log = JobLog("rl-1", to=shown)
    log.printed("a", " 10%\r 20%\r")
    log.printed("a", "100%\r\n\udcff\n")
    assert shown.getvalue() == "[a] 100%\n[a] ?\n"


def test_a_line_that_never_ends_is_written_in_parts() -> None:
    shown = StringIO()
    log = JobLog("rl-1", to=shown)
    log.printed("a", "x" * 20_000)
    log.printed("a", "y\n")
    assert [len(line) for line in shown.getvalue().splitlines()] == [20_004, 5]


def test_beyond_its_limit_the_log_says_where_all_of_it_is_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_log, "LIMIT", 20)
    shown = StringIO()
    log = JobLog("rl-1", to=shown)
    for _ in range(5):
        log.printed("a", "0123456789\n")
    log.ended("a")
    assert shown.getvalue().splitlines() == [
        "[a] 0123456789",
        "[a] 0123456789",
        "tasks have printed more than this log holds; all output: trainyard train.logs rl-1",
    ]


class Full(StringIO):
    """A file on a disk that is full."""

    def write(self, text: str) -> Any:
        raise OSError(errno.ENOSPC, "no space left on device")


def test_a_full_disk_costs_this_log_alone() -> None:
    log = JobLog("rl-1", to=Full())
    log.printed("a", "one\n")
