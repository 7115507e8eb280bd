"""Which run a command means, and runs that are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run_events import an_event
from trainyard.dispatch import launch
from trainyard.dispatch.follow import Screen
from trainyard.dispatch.runs import RunStatus, concluded
from trainyard.errors import RequestError
from trainyard.operations import runs
from trainyard.paths import Here
from trainyard.results import store
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory
from trainyard.results.sweep import Sweep


def status(name: str, state: str, *, unsure: str | None = None) -> RunStatus:
    found = RunState(run=name, cluster="lab", job="job", tasks=())
    if state == "ended":
        found.apply(an_event("run-ended", state="succeeded", exit=0, seconds=1.0, time=1.0))
    return RunStatus(RunDirectory(Path(name)), found, unsure=unsure)


def test_the_only_active_run_is_the_one_to_stop() -> None:
    gone = status("gone-1", "running", unsure="cluster unreachable")
    assert runs.the_open_run([status("a-2", "ended"), status("a-1", "running"), gone]) == "a-1"
    assert runs.the_open_run([gone]) == "gone-1"
    assert runs.the_open_run([status("a-2", "ended")]) is None


@pytest.mark.parametrize(
    ("state", "what"),
    [
        ("stopped", "interrupted; run a-1 was stopped"),
        ("succeeded", "interrupted; run a-1 succeeded"),
        ("failed", "interrupted; run a-1 failed"),
        (None, "interrupted; the run was asked to stop and has not reported its end"),
    ],
)
def test_an_interruption_says_how_the_run_ended(state: str | None, what: str) -> None:
    found = status("a-1", "running")
    if state:
        found.state.apply(an_event("run-ended", state=state, exit=0, seconds=1.0, time=1.0))
    error = launch.interrupted(found).error
    hint = "Resume it: trainyard train.resume a-1" if state in ("stopped", "failed") else None
    hint = hint if state else "See: trainyard train.status a-1"
    assert error and (error.what, error.exit_code, error.hint) == (what, 130, hint)
    found.state.sweep = Sweep({"mode": "max"})
    error = launch.interrupted(found).error
    assert error and (error.hint == "Resume it: trainyard tune.resume a-1") == (state == "stopped")


def test_none_of_several_active_runs_is_chosen_to_stop() -> None:
    with pytest.raises(RequestError) as caught:
        runs.the_open_run([status("a-2", "running"), status("a-1", "running")])
    assert str(caught.value) == (
        "2 runs are active\n  - RUN: one of: a-2, a-1\n  -> Name the one to stop: trainyard "
        "train.stop a-2"
    )


def test_a_damaged_run_is_named_and_hides_no_other(tmp_path: Path) -> None:
    here = Here({}, tmp_path)
    for name in ("good-1", "events-1", "record-1"):
        run = ended_run(tmp_path, name)

    (run.path / "run.json").write_text('{"x": [')
    (tmp_path / "results" / "events-1" / "events.jsonl").write_text("[]\n")
    found = {one.run.name: one.unsure for one in runs.statuses(here)}

    assert found == {
        "good-1": None,
        "events-1": (
            "run events-1 is damaged: not an event of Trainyard's runner: it is no JSON object"
        ),
        "record-1": "run record-1 is damaged: not the record of a run",
    }

    assert runs.find_run("good-1", here).name == "good-1"


def test_runs_are_chosen_by_job_state_and_age(tmp_path: Path) -> None:
    here = Here({}, tmp_path)
    ended_run(tmp_path, "good-1")
    chosen = [
        {"job": "jobs/good/"},
        {"job": "goo"},
        {"state": "failed"},
        {"state": "succeeded"},
        {"since": "5m"},
    ]

    assert [len(runs.statuses(here, **flags)) for flags in chosen] == [1, 0, 0, 1, 0]
    for flags, message in (
        ({"state": "suceeded"}, "did you mean 'succeeded'"),
        ({"since": "2 weeks"}, "--since"),
    ):
        with pytest.raises(RequestError, match=message):
            runs.statuses(here, **flags)


def test_a_fetch_with_nothing_left_to_fetch_needs_no_cluster(tmp_path: Path) -> None:
    here = Here({}, tmp_path)
    outcome = runs.fetch(ended_run(tmp_path, "good-1"), here, checkpoints=False, screen=Screen())
    assert (outcome.error, outcome.state.state) == (None, "succeeded")


def ended_run(home: Path, name: str) -> RunDirectory:
    """Return a run that has ended, on a cluster that is gone."""
    run = store.create(
        home / "results",
        {"run": name, "job": name[:-2], "cluster": "lab", "tasks": []},
        cluster="",
        job="",
    )
    run.events.write_text(
        '{"seq": 0, "time": 1.0, "event": "run-ended", "state": "succeeded", "exit": 0, '
        '"seconds": 1.0, "counts": {}}\n'
    )
    return run


def test_a_missing_module_is_to_be_installed_before_a_run_is_resumed() -> None:
    found = RunState(run="a-1", cluster="lab", job="job", tasks=("a",))
    tail = ["Traceback (most recent call last):", "ModuleNotFoundError: No module named 'torch'"]
    ended = {"task": "a", "attempt": 0, "outcome": "failed", "exit_code": 1, "tail": tail}
    found.apply(an_event("attempt-ended", time=1.0, **ended))
    found.apply(an_event("task-ended", time=1.0, task="a", state="failed", attempts=1))
    found.apply(an_event("run-ended", state="failed", exit=1, seconds=1.0, time=1.0))
    now = concluded(RunStatus(RunDirectory(Path("a-1")), found))
    assert now.error and str(now.error.hint).startswith("Python has no module torch there. ")
