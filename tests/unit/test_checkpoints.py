"""Checkpoints come home when their task ends: which ones, and which are too large or damaged."""

from __future__ import annotations

import datetime
import hashlib
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
from trainyard_runner.wire import archive
from trainyard_runner.wire.events import Event

from tests.run_events import an_event
from trainyard.dispatch import checkpoints, fetch, runs
from trainyard.dispatch.follow import Screen
from trainyard.endpoint import Endpoint
from trainyard.errors import NotReadyError
from trainyard.results import state as states
from trainyard.results import store
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import RayApi
from trainyard.spec.load import job_of

TUNE = {"space": {"lr": {"choice": [1, 2]}}, "metric": "reward", "samples": 2}
ARCHIVE = {
    "task": "a",
    "attempt": 1,
    "number": 1,
    "file": "outputs/a.1.tar",
    "bytes": 9000,
    "sha256": "",
    "whole": True,
    "removed": [],
    "each_attempt": False,
}
SWEEP = {"metric": "reward", "mode": "max"}


class Head:
    """A head that keeps one archive of each task's checkpoint."""

    def __init__(self, content: Path) -> None:
        self.tar = b"".join(archive.parts(archive.scan(str(content))[0].values(), [])) + bytes(1024)
        self.sent = self.tar

    @contextmanager
    def file(self, node_id: str, filename: str) -> Iterator[Iterator[bytes]]:
        yield iter([self.sent])

    def event(self, task: str) -> Event:
        digest = hashlib.sha256(self.tar).hexdigest()
        archived = {"archive_bytes": len(self.tar), "sha256": digest}
        return an_event(
            "checkpoint", seq=7, time=1.0, task=task, attempt=1, bytes=3, files=1, **archived
        )


@pytest.fixture
def head(tmp_path: Path) -> Head:
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "policy").write_text("abc")
    return Head(tmp_path / "task")


def a_run(home: Path, head: Head, **record: Any) -> tuple[RunDirectory, RunState]:
    """Return a run of two tasks; both have a checkpoint, and `a` has ended."""
    known = {
        "run": "job-1",
        "cluster": "lab",
        "tasks": ["a", "b"],
        "outputs_limit": 10**6,
        "checkpoints": "all",
    }

    run = store.create(home, known | record, cluster="", job="")
    state = states.fresh(run)
    for task in ("a", "b"):
        state.apply(an_event("attempt-started", time=1.0, task=task, attempt=1, node="head"))
        state.apply(head.event(task))

    state.apply(an_event("task-ended", time=2.0, task="a", state="succeeded"))
    return run, state


def end(state: RunState) -> None:
    state.apply(an_event("run-ended", time=3.0, state="failed", exit=1, seconds=2.0))


@pytest.mark.parametrize(
    ("keys", "which"),
    [
        ({}, "all"),
        ({"checkpoints": True}, "all"),
        ({"checkpoints": False}, "none"),
        ({"tune": TUNE}, "best"),
        ({"tune": TUNE, "checkpoints": True}, "all"),
    ],
)
def test_a_job_says_which_checkpoints_come_home(keys: dict[str, Any], which: str) -> None:
    command = ["train", "{lr}"] if "tune" in keys else ["train"]
    job = job_of({"name": "job", "command": command, **keys}, directory=Path())
    assert checkpoints.which(job) == which


def test_the_checkpoint_of_a_task_that_ended_comes_home_once(tmp_path: Path, head: Head) -> None:
    run, state = a_run(tmp_path, head)
    assert [task.name for task in checkpoints.due(run, state)] == ["a"]
    fetcher = fetch.Fetcher(cast(RayApi, head), run, note=lambda _: None)
    fetcher.fetch_checkpoints("node", state)
    assert (fetcher.wait(), fetcher.wait_for_checkpoints()) == ((), ())
    assert (run.checkpoint("a") / "policy").read_text() == "abc"
    assert checkpoints.due(run, state) == []
    end(state)
    assert [task.name for task in checkpoints.due(run, state)] == ["b"]


@pytest.mark.usefixtures("at_once")
def test_a_damaged_checkpoint_does_not_count_as_home(tmp_path: Path, head: Head) -> None:
    run, state = a_run(tmp_path, head)
    head.sent = head.tar[:-512]
    fetcher = fetch.Fetcher(cast(RayApi, head), run, note=lambda _: None)
    fetcher.fetch_checkpoints("node", state)
    (error,) = fetcher.wait_for_checkpoints()
    assert error.what.startswith(
        f"the download is damaged: {len(head.sent)} of {len(head.tar)} bytes"
    )
    assert not run.checkpoint("a").exists()
    concluded = runs.concluded(
        runs.RunStatus(run, state), unfetched=runs.Unfetched(checkpoints=(error,))
    )
    assert concluded.error and concluded.error.what.startswith(
        "checkpoints of 1 task are still on the cluster: "
    )


@pytest.mark.parametrize("which", ["none", None])
def test_checkpoints_stay_on_the_cluster_unless_the_job_wants_them(
    tmp_path: Path, head: Head, which: str | None
) -> None:
    run, state = a_run(tmp_path, head, checkpoints=which)
    assert (checkpoints.due(run, state), checkpoints.too_large(run, state)) == ([], "")
    assert [task.name for task in checkpoints.elsewhere(run, state)] == ["a", "b"]


def test_a_checkpoint_that_does_not_fit_is_named_with_its_fetch_command(
    tmp_path: Path, head: Head
) -> None:
    size = len(head.tar)
    run, state = a_run(tmp_path, head, outputs_limit=size)
    assert [task.name for task in checkpoints.due(run, state)] == ["a"]
    run.outputs("a").mkdir(parents=True)
    (run.outputs("a") / "video").write_bytes(b"v" * 9000)
    state.apply(an_event("outputs", **ARCHIVE))
    assert checkpoints.due(run, state) == [], "what has not come home counts too"
    store.number_file(run.outputs("a")).write_text("1")
    assert checkpoints.due(run, state) == []
    assert checkpoints.too_large(run, state) == (
        "checkpoints that stay on the cluster: a (2.0 KiB); each, with its task's outputs, "
        "exceeds the job's outputs_limit of "
        f"{size / 1024**2:.3g} MiB; to fetch what stays: trainyard train.fetch job-1 --checkpoints"
    )

    (run.outputs("a") / "video").unlink()
    assert [task.name for task in checkpoints.due(run, state)] == ["a"], (
        "archives hold older files too"
    )


def test_only_the_best_configurations_checkpoints_of_a_sweep_come_home(
    tmp_path: Path, head: Head
) -> None:
    run, state = a_run(tmp_path, head, checkpoints="best", tune=SWEEP)
    for trial, (task, value) in enumerate((("a", 1.0), ("b", 2.0))):
        state.apply(an_event("trial-started", time=1.0, trial=trial, params={}, tasks=[task]))
        ended = {"trial": trial, "outcome": "complete", "value": value, "values": [value]}
        state.apply(an_event("trial-ended", time=2.0, **ended))
    assert checkpoints.due(run, state) == [], "another one may become the best"
    end(state)
    assert [task.name for task in checkpoints.due(run, state)] == ["b"]


def test_fetch_reports_checkpoints_lost_with_their_cluster_and_the_time(
    tmp_path: Path, head: Head
) -> None:
    run, _ = a_run(tmp_path, head)
    run.events.write_text('{"seq": 0, "time": 1.0, "event": "run-started", "node_id": "n"}\n')

    with run.events.open("a") as file:
        for event in (
            head.event("a"),
            an_event("run-ended", state="failed", exit=1, seconds=2.0),
        ):
            file.write(line_of(event))

    loaded = states.load(run)
    at = datetime.datetime(2026, 11, 24, 15, 15, 13, tzinfo=datetime.timezone.utc)
    checkpoints.write_loss(run, [loaded.tasks["a"]], now=at)

    def connect(_: RunDirectory) -> Endpoint:
        raise NotReadyError("cluster lab is not up", hint="Make it: trainyard cluster.up")

    with pytest.raises(NotReadyError) as caught:
        runs.fetch(run, connect, screen=Screen(), checkpoints=True)

    assert caught.value.lines() == [
        "checkpoints of run job-1 were lost with the cluster at 15:15 on 24 November 2026: a (2.0 KiB)",
        "  at cluster lab is not up",
        "  -> To continue from what is here: trainyard train.resume job-1",
    ]


def line_of(event: Event) -> str:
    return json.dumps(event.line()) + "\n"


def test_a_checkpoint_that_cannot_be_written_here_is_not_kept_in_part(
    tmp_path: Path, head: Head
) -> None:
    unwritable = tarfile.TarInfo("n" * 300).tobuf(tarfile.GNU_FORMAT)
    head.tar = head.sent = unwritable + head.tar
    run, state = a_run(tmp_path, head)
    for _ in range(2):
        fetcher = fetch.Fetcher(cast(RayApi, head), run, note=lambda _: None)
        fetcher.fetch_checkpoints("node", state)
        fetcher.wait()
        (error,) = fetcher.wait_for_checkpoints()
        assert "the checkpoint of a cannot be written here: nnn" in error.what
        assert not run.checkpoint("a").exists()


def test_other_checkpoints_come_home_beside_one_that_cannot_be_written(
    tmp_path: Path, head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = a_run(tmp_path, head)
    whole = head.tar
    in_b = head.event("b")
    head.tar = tarfile.TarInfo("n" * 300).tobuf(tarfile.GNU_FORMAT) + whole
    ended = an_event("run-ended", state="failed", exit=1, seconds=2.0)
    run.events.write_text("".join(map(line_of, (head.event("a"), in_b, ended))))

    @contextmanager
    def file(node_id: str, filename: str) -> Iterator[Iterator[bytes]]:
        if filename.endswith("/a.tar"):
            yield iter([head.tar])
        else:
            yield iter([whole])

    monkeypatch.setattr(head, "file", file)
    monkeypatch.setattr(runs, "ray_of", lambda _: nullcontext(head))
    now = runs.fetch(run, lambda _: Endpoint("lab", ""), screen=Screen(), checkpoints=True)
    assert now.unfetched is not None
    assert "checkpoints of 1 task are still on the cluster" in now.unfetched.what
    assert [run.checkpoint(task).exists() for task in ("a", "b")] == [False, True]
