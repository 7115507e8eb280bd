"""What is said of a run whose runner died; and Ctrl-C: at once before anything was started, then a question."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any, cast

import pytest

from trainyard.dispatch.follow import Follower, Interrupts
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
    assert Follower(ray, journal, state).follow() == "ended"
    journal.close()
    assert (state.state, state.exit, state.error, state.hint) == (
        "failed",
        6,
        "the cluster's head was replaced, or the cluster was made anew: the run is lost, nobody there knows it",
        "See whether all nodes are back: trainyard cluster.status (if not: cluster.up). Then dispatch it again.",
    )


def test_before_anything_was_started_the_first_signal_interrupts() -> None:
    with pytest.raises(KeyboardInterrupt), Interrupts():
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_once_held_the_first_signal_asks_and_the_second_interrupts(number: signal.Signals) -> None:
    with Interrupts() as interrupts:
        interrupts.hold()
        assert not interrupts.asked()
        signal.raise_signal(number)
        assert interrupts.asked()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


def test_afterwards_signals_mean_what_they_meant_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
