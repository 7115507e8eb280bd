"""Events, folded: how a run stands, and which exit code it deserves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.run_events import an_event
from trainyard.dispatch.runs import RunStatus, Unfetched, concluded
from trainyard.errors import OutsideError
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory

RUN = RunDirectory(Path("results/job-1"))


def state_after(*events: tuple[str, dict[str, Any]]) -> RunState:
    state = RunState(run="job-1", cluster="lab", job="job", tasks=["a", "b"])
    for name, fields in events:
        state.apply(an_event(name, time=100.0, **fields))
    return state


def started(task: str, attempt: int = 1) -> tuple[str, dict[str, Any]]:
    return "attempt-started", {"task": task, "attempt": attempt, "node": "gpu-0"}


def ended(task: str, outcome: str, attempt: int = 1, **more: Any) -> tuple[str, dict[str, Any]]:
    fields = {
        "task": task,
        "attempt": attempt,
        "node": "gpu-0",
        "exit_code": 0,
        "seconds": 1.5,
        "outcome": outcome,
    }
    return "attempt-ended", {**fields, "reason": None, "tail": ["last"], "output": None, **more}


def run_ended(state: str, code: int, **more: Any) -> tuple[str, dict[str, Any]]:
    fields = {
        "state": state,
        "exit": code,
        "seconds": 9.0,
        "counts": {},
        "error": None,
        "hint": None,
    }
    return "run-ended", {**fields, **more}


def test_a_run_without_a_known_event_is_waiting() -> None:
    document = state_after(("fireworks", {})).document(
        now=200.0
    )  # an event of a later version changes nothing
    assert (document["state"], [task["state"] for task in document["tasks"]]) == (
        "waiting",
        ["waiting", "waiting"],
    )


def test_tasks_of_a_dead_runner_are_lost_or_never_began_not_stopped() -> None:
    gone = run_ended("failed", 6, error="the head was replaced", by="operator")
    state = state_after(("run-started", {"node_id": "n"}), started("a"), gone)
    assert {name: task.state for name, task in state.tasks.items()} == {
        "a": "failed",
        "b": "waiting",
    }
    attempt = state.tasks["a"].attempts[0]
    assert (attempt.outcome, attempt.reason, attempt.seconds) == (
        "lost",
        "the run's runner is gone",
        9.0,
    )

    assert dict(state.counts) == {"waiting": 1, "running": 0, "failed": 1}
    stopped = state_after(started("a"), run_ended("stopped", 1, by="operator"))
    assert [task.state for task in stopped.tasks.values()] == ["stopped", "stopped"]


def test_the_document_has_the_shape_of_the_design() -> None:
    state = state_after(
        ("run-started", {"node_id": "n"}),
        started("a"),
        ended("a", "failed", exit_code=3, reason="exit code 3"),
        started("a", 2),
        ended("a", "succeeded", 2),
        ("task-ended", {"task": "a", "state": "succeeded", "attempts": 2}),
        started("b"),
    )

    document = json.loads(json.dumps(state.document(now=160.0)))
    shown = [document[key] for key in ("run", "state", "cluster", "seconds")]
    assert shown == ["job-1", "running", "lab", 60.0]
    first, second = document["tasks"]
    assert (first["name"], first["state"], second["state"]) == ("a", "succeeded", "running")

    assert [
        (one["node"], one["exit_code"], one["seconds"], one["reason"]) for one in first["attempts"]
    ] == [
        ("gpu-0", 3, 1.5, "exit code 3"),
        ("gpu-0", 0, 1.5, None),
    ]


def archived(
    number: int, *, whole: bool = False, attempt: int = 1, each: bool = False
) -> tuple[str, dict[str, Any]]:
    return "outputs", {
        "task": "a",
        "attempt": attempt,
        "number": number,
        "whole": whole,
        "each_attempt": each,
        "file": f"outputs/a.{number}.tar",
        "bytes": 1,
        "sha256": "",
        "removed": [],
    }


def test_a_whole_archive_replaces_earlier_ones_of_its_attempt_or_task() -> None:
    state = state_after(
        archived(1, whole=True), archived(2), archived(3, whole=True), archived(4, attempt=2)
    )
    assert [archive.number for archive in state.tasks["a"].archives] == [3, 4]
    each = [
        archived(1, whole=True, each=True),
        archived(2, each=True),
        archived(3, whole=True, attempt=2, each=True),
    ]
    assert [archive.number for archive in state_after(*each).tasks["a"].archives] == [1, 2, 3]


@pytest.mark.parametrize(
    ("end", "code", "message"),
    [
        (run_ended("succeeded", 0), None, None),
        (run_ended("failed", 1), 1, "run job-1 failed, 2 of 2 tasks stopped"),
        (run_ended("stopped", 1), 1, "run job-1 stopped, 2 of 2 tasks stopped"),
        (run_ended("failed", 5, error="smoke failed"), 5, "smoke failed"),
        (run_ended("failed", 6, error="the runner died"), 6, "the runner died"),
    ],
)
def test_the_exit_code_is_the_runs(
    end: tuple[str, dict[str, Any]], code: int | None, message: str | None
) -> None:
    error = concluded(RunStatus(RUN, state_after(end))).error
    assert (error.exit_code if error else None, error.what if error else None) == (code, message)


def test_a_good_run_whose_outputs_are_missing_is_not_a_success() -> None:
    unfetched = Unfetched((OutsideError("connection lost"),))
    error = concluded(
        RunStatus(RUN, state_after(run_ended("succeeded", 0))), unfetched=unfetched
    ).error
    assert error is not None
    assert str(error) == (
        "outputs of 1 task are still on the cluster: connection lost\n  -> Try again: trainyard "
        "train.fetch job-1"
    )


def test_missing_outputs_of_a_failed_run_are_an_error_of_their_own_too() -> None:
    unfetched = Unfetched((OutsideError("connection lost"),))
    now = concluded(RunStatus(RUN, state_after(run_ended("failed", 1))), unfetched=unfetched)
    assert now.error is not None and now.error.lines()[2] == (
        "  - results: outputs of 1 task are still on the cluster: connection lost; to fetch them: "
        "trainyard train.fetch job-1"
    )
    assert now.unfetched is not None and now.unfetched.exit_code == 6


def test_reserved_room_and_what_waits_for_it_are_shown_while_they_hold() -> None:
    kept = ("kept-free", {"room": {"cpus": 5.0, "gpus": 0.0, "memory": 0}})
    waiting = ("drivers-waiting", {"text": "no room", "again": False})
    state = state_after(started("a"), started("b"), kept, waiting)
    document = state.document(now=200.0)
    assert document["kept_free"] == {"cpus": 5.0, "gpus": 0.0, "memory": 0}
    assert document["waiting"] == {"tasks": 0, "needs": (), "holders": (), "text": "no room"}
    state.apply(an_event("drivers-waiting", time=101.0, text="", again=True))
    assert state.waiting is None
    ended_now = state_after(kept, waiting, run_ended("stopped", 1)).document(now=200.0)
    assert (ended_now["kept_free"], ended_now["waiting"]) == (None, None)
