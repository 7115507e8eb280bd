"""What is said of a run whose runner died."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, cast

import pytest
from trainyard_runner import bootstrap

from trainyard.dispatch.follow import Follower, printed_by_runner, silent_since
from trainyard.dispatch.screens import Screen
from trainyard.results.journal import Journal
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import RayApi

COMMAND = "exec " + shlex.join(bootstrap.argv("hang-1", runner="_ray_pkg_1.zip", plan="_ray_pkg_2.zip"))


class HeadMadeAnew:
    """A cluster whose head knows of no run."""

    def job(self, run: str) -> None:
        """Know none."""


def test_a_run_that_its_cluster_forgot_says_why_and_what_to_do(tmp_path: Path) -> None:
    journal = Journal(RunDirectory(tmp_path))
    state = RunState(run="hang-1", cluster="lab", job="job", tasks=["a"])
    state.apply({"event": "run-started", "time": 100.0, "node_id": "n"})
    ray = cast(RayApi, cast(Any, HeadMadeAnew()))
    assert Follower(ray, "hang-1", journal, state, None, Screen(), lambda: False, True).follow() == "ended"
    journal.close()
    assert (state.state, state.exit, state.error, state.hint) == (
        "failed",
        6,
        "the cluster's head was replaced, or the cluster was made anew: the run is lost, nobody there knows it",
        "See whether all nodes are back: invoke cluster.status (if not: cluster.up). Then dispatch it again.",
    )


@pytest.mark.parametrize(
    ("log", "printed"),
    [
        (f"INFO -- Runtime env is setup.\nRunning entrypoint: {COMMAND}\ngate passed\nend\n", ["gate passed", "end"]),
        (f"Running entrypoint: {COMMAND}", []),
        ("one\ntwo\n", ["one", "two"]),
    ],
)
def test_the_runners_last_lines_are_not_the_command_that_started_it(log: str, printed: list[str]) -> None:
    assert printed_by_runner(log) == printed


@pytest.mark.parametrize(("out_of_reach", "since"), [(0.0, 100.0), (131.0, 131.0), (60.0, 100.0), (1000.0, 280.0)])
def test_while_the_way_to_a_cluster_is_closed_it_is_not_called_silent_for_three_minutes(
    out_of_reach: float, since: float
) -> None:
    assert silent_since(100.0, out_of_reach) == since
