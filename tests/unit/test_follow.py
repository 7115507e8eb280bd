"""What is said of a run whose runner died."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, cast

from trainyard_runner import bootstrap

from trainyard.dispatch.follow import Follower, Watch, printed_by_runner
from trainyard.dispatch.screens import Silent
from trainyard.results.journal import Journal
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import RayApi
from trainyard.seams.ray_types import job_from

COMMAND = "exec " + shlex.join(bootstrap.argv("hang-1", runner="_ray_pkg_1.zip", plan="_ray_pkg_2.zip"))


def test_the_runners_last_lines_are_not_the_command_that_started_it() -> None:
    log = f"INFO -- Runtime env is setup.\nRunning entrypoint: {COMMAND}\ngate passed\nend\n"
    assert printed_by_runner(log) == ["gate passed", "end"]


class HeadMadeAnew:
    """A cluster whose head knows of no run."""

    def job(self, run: str) -> None:
        """Know none."""


class Patient:
    """A user who waits."""

    asked = False


def test_a_run_that_its_cluster_forgot_says_why_and_what_to_do(tmp_path: Path) -> None:
    journal = Journal(RunDirectory(tmp_path))
    state = RunState(run="hang-1", cluster="lab", job="job", tasks=["a"])
    state.apply({"event": "run-started", "time": 100.0, "node_id": "n"})
    ray = cast(RayApi, cast(Any, HeadMadeAnew()))
    assert Follower(Watch(ray, "hang-1", journal, state, None, Silent(), Patient(), True)).follow() == "ended"
    journal.close()
    assert (state.state, state.exit, state.error, state.hint) == (
        "failed",
        6,
        "the cluster's head was replaced, or the cluster was made anew: the run is lost, nobody there knows it",
        "See whether all nodes are back: invoke cluster.status (if not: cluster.up). Then dispatch it again.",
    )


def test_a_runner_that_printed_nothing_has_no_last_lines() -> None:
    assert printed_by_runner(f"Running entrypoint: {COMMAND}\n") == []
    assert printed_by_runner(f"Running entrypoint: {COMMAND}") == []


def test_a_log_without_the_command_is_the_runners_own() -> None:
    assert printed_by_runner("one\ntwo\n") == ["one", "two"]


def test_ray_says_when_a_job_ended_in_milliseconds() -> None:
    assert job_from({"status": "FAILED", "end_time": 1_763_000_000_500}).end == 1_763_000_000.5
    assert job_from({"status": "RUNNING", "end_time": None}).end is None
