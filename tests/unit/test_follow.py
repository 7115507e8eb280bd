"""What is said of a run whose runner died."""

from __future__ import annotations

import shlex

from trainyard_runner import bootstrap

from trainyard.dispatch.follow import printed_by_runner
from trainyard.seams.ray_types import job_from

COMMAND = "exec " + shlex.join(bootstrap.argv("hang-1", runner="_ray_pkg_1.zip", plan="_ray_pkg_2.zip"))


def test_the_runners_last_lines_are_not_the_command_that_started_it() -> None:
    log = f"INFO -- Runtime env is setup.\nRunning entrypoint: {COMMAND}\ngate passed\nend\n"
    assert printed_by_runner(log) == ["gate passed", "end"]


def test_a_runner_that_printed_nothing_has_no_last_lines() -> None:
    assert printed_by_runner(f"Running entrypoint: {COMMAND}\n") == []
    assert printed_by_runner(f"Running entrypoint: {COMMAND}") == []


def test_a_log_without_the_command_is_the_runners_own() -> None:
    assert printed_by_runner("one\ntwo\n") == ["one", "two"]


def test_ray_says_when_a_job_ended_in_milliseconds() -> None:
    assert job_from({"status": "FAILED", "end_time": 1_763_000_000_500}).end == 1_763_000_000.5
    assert job_from({"status": "RUNNING", "end_time": None}).end is None
