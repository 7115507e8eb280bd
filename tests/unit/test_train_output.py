"""What a person reads at the end of a run."""

from __future__ import annotations

import datetime
import io
import json
import re
import sys
import time
from pathlib import Path

import pytest

from trainyard.dispatch.looking import Standing
from trainyard.dispatch.outcome import Outcome
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory
from trainyard.tasks import train_output


def ended_with(tail: list[str]) -> RunState:
    state = RunState(run="job-1", cluster="lab", job="job", tasks=["a"])
    for event, fields in (
        ("attempt-started", {"attempt": 1, "node": "gpu-0"}),
        ("attempt-ended", {"attempt": 1, "node": "gpu-0", "outcome": "failed", "reason": "killed by SIGKILL"}),
        ("task-ended", {"state": "failed", "attempts": 1}),
    ):
        state.apply({"event": event, "task": "a", "time": 1.0, "tail": tail, **fields})
    state.apply({"event": "run-ended", "time": 2.0, "state": "failed", "exit": 0, "seconds": 1.0})
    return state


@pytest.mark.parametrize(
    ("tail", "shown"),
    [
        (["loss is nan"], "last lines of a (killed by SIGKILL):\n    loss is nan\n"),
        ([], "a failed: killed by SIGKILL\n"),
    ],
)
def test_a_failed_task_shows_its_last_lines_or_only_why_it_failed(
    tail: list[str], shown: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    train_output.ended(Outcome(RunDirectory(tmp_path), ended_with(tail), {}), json=False)
    assert shown in capsys.readouterr().out


def test_a_checkpoint_that_is_on_its_way_is_not_listed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("a", ".a.7"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    (tmp_path / "checkpoints" / ".a.fetched").write_text("5")
    train_output.fetched(Outcome(RunDirectory(tmp_path), ended_with([]), {}), json=False)
    assert capsys.readouterr().out == f"{tmp_path / 'checkpoints' / 'a'}\n"


class Terminal(io.StringIO):
    """A terminal that remembers what it was sent."""

    def isatty(self) -> bool:
        return True


def standing_of(tmp_path: Path, name: str, *, unsure: str | None = None) -> Standing:
    run = RunDirectory(tmp_path / name)
    run.path.mkdir()
    moment = datetime.datetime.fromtimestamp(time.time() - 7200.5, datetime.timezone.utc)
    record = {"run": name, "started": moment.isoformat(), "user": "anna.schmidt"}
    (run.path / "run.json").write_text(json.dumps(record))
    return Standing(run, RunState(run=name, cluster="a-cluster-of-a-lab", job="cartpole", tasks=["a"]), unsure=unsure)


def test_at_80_columns_the_list_of_runs_is_a_table_with_whole_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    names = ["cartpole-20260921-141320-1a2b", "cartpole-20260921-141320-0c0d"]
    unsure = [None, "cluster unreachable: no answer from Ray's dashboard"]
    found = [standing_of(tmp_path, name, unsure=why) for name, why in zip(names, unsure, strict=True)]
    train_output.listed(found, json=False)
    lines = terminal.getvalue().splitlines()
    rows = [line.split() for line in lines if "cartpole" in line]
    assert [row[0] for row in rows] == names
    assert [row[1:3] + row[4:7] for row in rows] == [
        ["waiting", "0/1", "2", "h", "ago"],
        ["unknown", "0/1", "2", "h", "ago"],
    ]
    assert max(len(re.sub("\x1b\\[[0-9;]*m", "", line)) for line in lines[:-1]) <= 80
    assert lines[-1] == f"unknown, on cluster a-cluster-of-a-lab: {unsure[1]}"
