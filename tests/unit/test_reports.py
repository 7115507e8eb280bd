"""What commands print: reports, and the one printer of all of them."""

from __future__ import annotations

import datetime
import io
import json
import re
import sys
import time
from pathlib import Path

import pytest

from trainyard.backends.contract import Tools
from trainyard.dispatch.runs import RunStatus
from trainyard.errors import OutsideError, Problem, RequestError
from trainyard.lifecycle import Cluster
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory
from trainyard.spec.load import load_cluster
from trainyard.steps import PlannedStep
from trainyard.tasks import cluster, report, train
from trainyard.tasks.report import Report, Table


def lab(tmp_path: Path) -> Cluster:
    file = tmp_path / "lab.yaml"
    file.write_text("{name: lab, backend: local}")
    return Cluster(load_cluster(file), Tools(tmp_path / "state", {}, "local", source=file))


def test_people_get_lines_notes_and_last_the_next_command(capsys: pytest.CaptureFixture[str]) -> None:
    report.show(Report({}, ["done", Table(["a"], [["1"]])], notes=["by the way"], next="invoke x"), json=False)
    shown = capsys.readouterr()
    assert shown.out.split() == ["done", "a", "─", "1"]
    assert shown.err == "by the way\nnext: invoke x\n"


def test_machines_get_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    report.show(Report({"runs": [{"job": "a"}]}, ["for people"], next="x"), json=True)
    shown = capsys.readouterr()
    assert (json.loads(shown.out), shown.err) == ({"runs": [{"job": "a"}]}, "")


def test_a_failure_is_a_document_too_unless_the_command_printed_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    error = RequestError("it is wrong", problems=(Problem("a.yaml:1", "one"),), hint="Mend it.")
    report.begin(json=True)
    report.fail(error)
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {
        "error": "it is wrong",
        "where": None,
        "hint": "Mend it.",
        "problems": [{"where": "a.yaml:1", "message": "one"}],
        "exit_code": 2,
    }
    assert shown.err == "error: it is wrong\n  - a.yaml:1: one\n  -> Mend it.\n"
    report.begin(json=True)
    with pytest.raises(OutsideError) as caught:
        report.show(Report({"ok": False}, error=OutsideError("it broke")), json=True)
    report.fail(caught.value)
    assert json.loads(capsys.readouterr().out) == {"ok": False}


@pytest.mark.parametrize(
    ("step", "command"),
    [
        (PlannedStep("Make the cluster anew", "would", "needs --recreate, which ends all"), "cluster.up --recreate"),
        (PlannedStep("Start the head", "would"), "cluster.up"),
        (PlannedStep("Start the head", "already"), "cluster.status"),
    ],
)
def test_the_command_after_a_plan_is_one_that_will_do(step: PlannedStep, command: str, tmp_path: Path) -> None:
    assert cluster.planned(lab(tmp_path), [step], "cluster.up").next == f"invoke {command}"


class Terminal(io.StringIO):
    """A terminal that remembers what it was sent."""

    def isatty(self) -> bool:
        return True


def status_of(tmp_path: Path, name: str, *, unsure: str | None = None) -> RunStatus:
    run = RunDirectory(tmp_path / name)
    run.path.mkdir()
    moment = datetime.datetime.fromtimestamp(time.time() - 7200.5, datetime.timezone.utc)
    record = {"run": name, "started": moment.isoformat(), "user": "anna.schmidt"}
    (run.path / "run.json").write_text(json.dumps(record))
    return RunStatus(run, RunState(run=name, cluster="a-cluster-of-a-lab", job="cartpole", tasks=["a"]), unsure=unsure)


def test_at_80_columns_the_list_of_runs_is_a_table_with_whole_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    names = ["cartpole-20260921-141320-1a2b", "cartpole-20260921-141320-0c0d"]
    unsure = [None, "cluster unreachable: no answer from Ray's dashboard"]
    statuses = [status_of(tmp_path, name, unsure=why) for name, why in zip(names, unsure, strict=True)]
    report.show(train.listed(statuses), json=False)
    lines = terminal.getvalue().splitlines()
    rows = [line.split() for line in lines if "cartpole" in line]
    assert [row[0] for row in rows] == names
    assert [row[1:3] + row[4:7] for row in rows] == [
        ["waiting", "0/1", "2", "h", "ago"],
        ["unknown", "0/1", "2", "h", "ago"],
    ]
    assert max(len(re.sub("\x1b\\[[0-9;]*m", "", line)) for line in lines[:-1]) <= 80
    assert lines[-1] == f"unknown, on cluster a-cluster-of-a-lab: {unsure[1]}"
