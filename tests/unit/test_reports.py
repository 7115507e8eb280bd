"""The output of commands: reports, and the one printer of all of them."""

from __future__ import annotations

import datetime
import io
import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.run_events import an_event
from trainyard.backends.contract import Site
from trainyard.console import report
from trainyard.console.report import Report, Table
from trainyard.dispatch.runs import RunStatus
from trainyard.errors import JobFailedError, OutsideError, Problem, RequestError
from trainyard.operations.cluster import Cluster
from trainyard.operations.cluster_list import ListedCluster
from trainyard.paths import Here
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory
from trainyard.spec.load import load_cluster
from trainyard.steps import PlannedStep
from trainyard.tasks import cluster, train, tune
from trainyard.tasks.command import Call


def lab(tmp_path: Path) -> Cluster:
    file = tmp_path / "lab.yaml"
    file.write_text("{name: lab, backend: local}")
    return Cluster(load_cluster(file), Site(tmp_path / "state", {}, "local", source=file))


def test_people_get_lines_notes_and_last_the_next_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report.show(
        Report({}, ["done", Table(["a"], [["1"]])], notes=["by the way"], next="trainyard x"),
        json=False,
    )
    shown = capsys.readouterr()
    assert shown.out.split() == ["done", "a", "─", "1"]
    assert shown.err == "by the way\nnext: trainyard x\n"


def test_a_script_that_has_its_own_next_command_hears_of_no_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINYARD_NO_NEXT", "1")
    report.show(Report({}, ["done"], notes=["by the way"], next="trainyard x"), json=False)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("done\n", "by the way\n")


def test_machines_get_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    report.show(Report({"runs": [{"job": "a"}]}, ["for people"], next="x"), json=True)
    shown = capsys.readouterr()
    assert (json.loads(shown.out), shown.err) == ({"runs": [{"job": "a"}]}, "")


def test_a_failure_is_a_document_too_unless_the_command_printed_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
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
        (
            PlannedStep("Replace the whole cluster", "would", needs="--recreate"),
            "cluster.up --recreate",
        ),
        (PlannedStep("Change it", "would", needs="--adopt"), "cluster.up --adopt"),
        (PlannedStep("Start the head", "would"), "cluster.up"),
        (PlannedStep("Start the head", "already"), "cluster.status"),
    ],
)
def test_the_command_after_a_plan_is_one_that_will_do(
    step: PlannedStep, command: str, tmp_path: Path
) -> None:
    assert cluster.planned(lab(tmp_path), [step], "cluster.up").next == f"trainyard {command}"


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
    return RunStatus(
        run,
        RunState(run=name, cluster="a-cluster-of-a-lab", job="cartpole", tasks=["a"]),
        unsure=unsure,
    )


def test_at_80_columns_the_list_of_runs_is_a_table_with_whole_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    names = ["cartpole-20260921-141320-1a2b", "cartpole-20260921-141320-0c0d"]
    unsure = [None, "cluster unreachable: no answer from Ray's dashboard"]
    statuses = [
        status_of(tmp_path, name, unsure=why) for name, why in zip(names, unsure, strict=True)
    ]
    report.show(train.listed(statuses, Here({}, tmp_path)), json=False)
    lines = terminal.getvalue().splitlines()
    rows = [line.split() for line in lines if "cartpole" in line]
    assert [row[0] for row in rows] == names
    assert [row[1:3] + row[4:7] for row in rows] == [
        ["waiting", "0/1", "2", "h", "ago"],
        ["unknown", "0/1", "2", "h", "ago"],
    ]
    assert max(len(re.sub("\x1b\\[[0-9;]*m", "", line)) for line in lines[:-1]) <= 80
    assert lines[-1] == f"unknown, on cluster a-cluster-of-a-lab: {unsure[1]}"


def sweep_of(tmp_path: Path, outcomes: list[tuple[str, float | None]], *, exit: int) -> RunStatus:
    run = RunDirectory(tmp_path / "sweep-1")
    state = RunState(
        run=run.name, cluster="lab", job="job", tune={"metric": "reward", "mode": "max"}
    )

    for number, (outcome, value) in enumerate(outcomes):
        params = {"lr": 0.159206590003581 / (number + 1), "nesterov": True}
        state.apply(an_event("trial-started", time=1.0, trial=number, params=params, tasks=[]))
        fields = {
            "value": value,
            "values": [value],
            "reason": "exit code 1" if outcome == "failed" else None,
        }

        state.apply(an_event("trial-ended", time=2.0, trial=number, outcome=outcome, **fields))

    end = {"reason": "all samples were tried", "samples": len(outcomes), "best": None}
    ended = {"state": "failed" if exit else "succeeded", "exit": exit, "seconds": 1.0, "sweep": end}
    state.apply(an_event("run-ended", time=3.0, **ended))
    return RunStatus(run, state)


def test_a_sweep_is_its_best_configurations_and_why_others_failed(tmp_path: Path) -> None:
    shown = tune.shown(
        sweep_of(tmp_path, [("complete", 1 / 3), ("failed", None), ("complete", 2 / 3)], exit=0)
    )
    table, *lines = shown.body
    assert isinstance(table, Table) and table.title == "2 complete trials"
    assert [list(row) for row in table.rows] == [
        [2, "0.6667", "", "0.05307", "true", ""],
        [0, "0.3333", "", "0.1592", "true", ""],
    ]
    assert lines == [
        "trial 1 failed: exit code 1",
        "sweep sweep-1 succeeded (all samples were tried): 2 complete, 1 failed",
    ]
    assert json.loads(json.dumps(shown.document))["best"]["params"]["lr"] == 0.159206590003581 / 3


def test_a_sweep_of_which_all_failed_has_no_table_and_its_logs_come_next(tmp_path: Path) -> None:
    shown = tune.shown(sweep_of(tmp_path, [("failed", None)] * 7, exit=1))
    assert list(shown.body[:6]) == [
        *(f"trial {number} failed: exit code 1" for number in range(5)),
        "... and 2 more trials failed",
    ]
    assert shown.next == "trainyard train.logs sweep-1"


def test_without_runs_the_list_says_so_and_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    report.show(train.listed([], Here({}, tmp_path)), json=False)
    shown = capsys.readouterr()
    assert shown.out == "there are no such runs in results\n"
    assert shown.err == "next: trainyard train.dispatch jobs/cartpole\n"


def failed(tmp_path: Path, *, hint: str | None = None) -> RunStatus:
    status = status_of(tmp_path, "walk-1")
    status.state.apply(an_event("run-ended", time=3.0, state="failed", exit=1, seconds=1.0))
    status.run.report.write_text("")
    return replace(status, error=JobFailedError("1 of 1 tasks failed", hint=hint))


def test_a_failed_run_prints_its_logs_unless_its_error_knows_better(tmp_path: Path) -> None:
    error = train.ended(failed(tmp_path)).error
    assert error is not None and error.hint == "See: trainyard train.logs walk-1"
    (tmp_path / "other").mkdir()
    error = train.ended(failed(tmp_path / "other", hint="Buy memory.")).error
    assert error is not None and error.hint == "Buy memory."


def test_the_seconds_of_a_task_are_those_of_all_its_attempts(tmp_path: Path) -> None:
    state = status_of(tmp_path, "walk-1").state
    for attempt, seconds in ((1, 4.0), (2, 5.5)):
        about = {"task": "a", "attempt": attempt, "time": 1.0, "node": "head", "node_id": "n"}
        state.apply(an_event("attempt-started", gpus=[], **about))
        ended = {"outcome": "failed", "exit_code": 1, "seconds": seconds, "reason": "exit code 1"}
        state.apply(an_event("attempt-ended", tail=[], output=None, **about, **ended))
    (row,) = next(iter(train.tasks_table(state, now=9.0))).rows
    assert list(row) == ["a", "waiting", 2, "head", "9.5", 1, "exit code 1"]


def test_a_run_that_had_ended_is_not_said_to_be_stopped_now(tmp_path: Path) -> None:
    run = status_of(tmp_path, "walk-1").run
    ended = an_event("run-ended", time=3.0, state="succeeded", exit=0, seconds=1.0)
    run.events.write_text(json.dumps(ended.line()) + "\n")
    stopped = train.stopped(Call("train.stop", ""), run)
    assert (list(stopped.body), stopped.error) == (
        ["run walk-1 had already ended (succeeded)"],
        None,
    )


def test_problems_of_a_cluster_file_are_listed_line_by_line() -> None:
    details = ("lab.yaml:1: name: is missing", "lab.yaml:2: bakend: is not a known key")
    problem = "; ".join(["the cluster file is wrong", *details])
    listed = ListedCluster("lab", "?", "unknown", "lab.yaml", problem=problem, details=details)
    assert listed.lines == ["lab: the cluster file is wrong", *(f"  - {each}" for each in details)]


@pytest.mark.parametrize(
    ("text", "ports"), [("6006", (6006, 6006)), ("16006:6006", (16006, 6006)), ("0:80", (0, 80))]
)
def test_a_port_may_be_another_one_here(text: str, ports: tuple[int, int]) -> None:
    assert cluster._ports(text) == ports


@pytest.mark.parametrize("text", ["", "0", "x", "70000", "1:", "1:2:3", "-1", "80:0"])
def test_an_invalid_port_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="is no port"):
        cluster._ports(text)
