"""What is said of a run whose runner died."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from trainyard.dispatch.follow import Follower
from trainyard.dispatch.screens import Screen
from trainyard.results.journal import Journal
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import RayApi


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
