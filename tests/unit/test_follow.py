"""A run whose runner died; and Ctrl-C: at once before anything was started, then a question."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from trainyard_runner.wire.events import Event

from tests.run_events import an_event
from tests.unit.fake_time import FakeTime
from trainyard.dispatch import follow
from trainyard.dispatch.fetch import Fetcher
from trainyard.dispatch.follow import Follower, Interrupts, Screen
from trainyard.results.journal import Journal
from trainyard.results.state import RunState, Task
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import RayApi
from trainyard.seams.ray_types import Job


class HeadMadeAnew:
    """A cluster whose head knows of no run."""

    def job(self, run: str) -> None:
        """Know none."""


def test_a_run_that_its_cluster_forgot_says_why_and_what_to_do(tmp_path: Path) -> None:
    journal = Journal(RunDirectory(tmp_path))
    state = RunState(run="hang-1", cluster="lab", job="job", tasks=["a"])
    state.apply(an_event("run-started", time=100.0, node_id="n"))
    ray = cast(RayApi, cast(Any, HeadMadeAnew()))
    assert Follower(ray, journal, state).follow() == "ended"
    journal.close()

    assert (state.state, state.exit, state.error, state.hint) == (
        "failed",
        6,
        "the cluster's head or the whole cluster was replaced: the run is lost, "
        "and so are checkpoints that were not fetched",
        "See whether all nodes are back: trainyard cluster.status (if not: cluster.up). Then "
        "resume it: "
        "trainyard train.resume hang-1",
    )


class Cluster:
    """A cluster that knows a run, and what its runner has written."""

    address = "http://cluster"

    def __init__(self, job: Job, *events: Event) -> None:
        self._job = job
        placed = [replace(event, seq=seq, time=100.0) for seq, event in enumerate(events)]
        self._stream = "".join(json.dumps(event.line()) + "\n" for event in placed).encode()

    def job(self, run: str) -> Job:
        return self._job

    def file(self, *_: Any, **__: Any) -> nullcontext[Iterator[bytes]]:
        return nullcontext(iter([self._stream]))


def follower(tmp_path: Path, cluster: Cluster, **more: Any) -> Follower:
    state = RunState(run="hang-1", cluster="lab", job="job", tasks=["a"])
    return Follower(
        cast(RayApi, cast(Any, cluster)), Journal(RunDirectory(tmp_path)), state, **more
    )


def test_a_run_whose_runner_died_unfollowed_has_ended_for_its_status(tmp_path: Path) -> None:
    job = Job("hang-1", "FAILED", "killed", "n", 137, {}, end=107.0)
    asking = follower(tmp_path, Cluster(job, an_event("run-started", node_id="n")), catch_up=True)
    assert asking.follow() == "ended"
    assert (asking.state.state, asking.state.seconds, asking.state.error) == (
        "failed",
        7.0,
        "the runner died (Ray says FAILED, exit code 137: killed)",
    )


class Noting:
    """A fetcher that only notes of which task it is to fetch."""

    def __init__(self) -> None:
        self.outputs: list[str] = []
        self.checkpoints: list[str] = []

    def fetch(self, node_id: str, task: Task) -> None:
        self.outputs.append(task.name)

    def fetch_checkpoints(self, node_id: str, state: RunState, *, among: list[Task]) -> None:
        self.checkpoints += [task.name for task in among]


def test_a_follower_fetches_outputs_at_once_and_checkpoints_at_task_end(tmp_path: Path) -> None:
    archive = {
        "file": "a.tar",
        "bytes": 1,
        "sha256": "0",
        "whole": True,
        "removed": [],
        "each_attempt": False,
    }

    outputs = an_event("outputs", task="a", attempt=1, number=1, files=1, left_out=[], **archive)

    came: list[tuple[int, int]] = []
    fetcher = Noting()

    class Watching(Screen):
        def event(self, event: Event, state: RunState) -> None:
            came.append((len(fetcher.outputs), len(fetcher.checkpoints)))

    ended = an_event("task-ended", task="a", state="failed", attempts=1)
    over = an_event("run-ended", state="failed", exit=1, seconds=1.0)
    started = an_event("run-started", node_id="n")
    cluster = Cluster(Job("hang-1", "RUNNING", "", "n", None, {}), started, outputs, ended, over)
    following = follower(
        tmp_path, cluster, fetcher=cast(Fetcher, cast(Any, fetcher)), screen=Watching()
    )
    assert following.follow() == "ended"
    # As each event came, and at the end.
    assert (came, fetcher.outputs, fetcher.checkpoints) == (
        [(0, 0), (0, 0), (1, 0), (1, 1)],
        ["a"],
        ["a"],
    )


def test_a_run_that_does_not_begin_says_once_what_ray_says_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeTime()
    monkeypatch.setattr(follow, "time", clock)
    notes: list[str] = []
    job = Job("hang-1", "PENDING", "Job is waiting for a worker.\nmore", None, None, {})

    waiting = follower(
        tmp_path,
        Cluster(job),
        screen=Screen(note=lambda text: notes.append(f"{clock.now:.0f} s: {text}")),
        interrupted=lambda: clock.now > 2 * follow.BEGINS_WITHIN,
    )

    assert waiting.follow() == "left"
    assert notes == [
        "30 s: the run's runner has not started in 30 s; Ray says PENDING: Job is waiting for a worker.; "
        "for the state of the nodes: trainyard cluster.status; for the logs of Ray on them: "
        "trainyard cluster.logs"
    ]


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


def test_the_sigterm_handler_is_restored_after_an_interrupts_block() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
