"""The fate of a run's files, in the last lines of its command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainyard_runner.node.outputs import counted

from tests.run_events import an_event
from trainyard.results import account
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory, number_file

SENT = {"files": 12, "bytes": 1536, "left_out": ["data/", "notes.txt"], "left_out_count": 2}
NONE = counted([])


def lines(
    place: Path,
    *events: tuple[str, dict[str, Any]],
    tasks: tuple[str, ...] = ("a",),
    sent: dict[str, Any] = SENT,
) -> list[str]:
    """Return what is said of a run with these events, which succeeded."""
    (place / "run.json").write_text(json.dumps({"cluster": "lab", "tasks": tasks, "sent": sent}))
    state = RunState(run=place.name, cluster="lab", job="job", tasks=tasks)
    end = {"state": "succeeded", "exit": 0, "seconds": 9.0}
    for name, fields in [*events, ("run-ended", end)]:
        state.apply(an_event(name, time=100.0, **fields))
    return list(account.lines(RunDirectory(place), state))


def left(
    task: str = "a", *, attempt: int = 1, files: int = 0, **more: Any
) -> tuple[str, dict[str, Any]]:
    said = {
        "brought": {"files": files, "bytes": 1024 * files},
        "not_brought": NONE,
        "undeclared": NONE,
        **more,
    }
    return "attempt-ended", {
        "task": task,
        "attempt": attempt,
        "node": "n",
        "outcome": "succeeded",
        **said,
    }


def archived(number: int, *, attempt: int = 1, each: bool = False) -> tuple[str, dict[str, Any]]:
    return "outputs", {
        "task": "a",
        "attempt": attempt,
        "number": number,
        "whole": False,
        "each_attempt": each,
        "file": f"outputs/a.{number}.tar",
        "bytes": 1,
        "sha256": "",
        "removed": [],
    }


def bring(place: Path, number: int) -> None:
    directory = RunDirectory(place).outputs("a")
    directory.mkdir(parents=True)
    number_file(directory).write_text(str(number))


def test_files_sent_left_out_and_fetched_are_reported_in_one_line(tmp_path: Path) -> None:
    bring(tmp_path, 1)
    said = lines(tmp_path, archived(1), left(files=3))
    assert said == [
        "files: 12 sent (1.5 KiB), 2 left out (data/, notes.txt), 3 brought home (3.0 KiB)"
    ]


def test_outputs_still_on_the_cluster_are_named_with_their_fetch_command(tmp_path: Path) -> None:
    (line,) = lines(tmp_path, archived(1), left(files=3))
    fetch = f"trainyard train.fetch {tmp_path.name}"
    assert line.endswith(f"none brought home, 3 still on the cluster (3.0 KiB): {fetch}")


def test_a_lost_task_is_reported_with_an_unknown_number_of_files(tmp_path: Path) -> None:
    bring(tmp_path, 1)
    lost = ("attempt-ended", {"task": "a", "attempt": 1, "node": "n", "outcome": "lost"})
    (line,) = lines(tmp_path, archived(1), lost)
    assert line.endswith("none brought home, and an unknown number of files of a")


def test_files_of_the_last_attempt_or_of_each_kept_one_are_counted(tmp_path: Path) -> None:
    both = [left(files=3), left(files=4, attempt=2)]
    bring(tmp_path, 2)
    assert "4 brought home" in lines(tmp_path, archived(1), archived(2, attempt=2), *both)[0]
    each = [archived(1, each=True), archived(2, attempt=2, each=True)]
    assert "7 brought home" in lines(tmp_path, *each, *both)[0]


def test_each_loss_is_named_for_the_first_task_and_counted_for_the_others(tmp_path: Path) -> None:
    lost = counted([f"out/{number}: a link that leads outside" for number in range(7)])
    behind = counted(["notes.txt"])
    events = [
        left(task, not_brought=lost, undeclared=behind, absent_outputs=["model"])
        for task in ("a", "b")
    ]
    reasons = ", ".join(f"out/{number}: a link that leads outside" for number in range(5))
    assert lines(tmp_path, *events, left("c"), tasks=("a", "b", "c"))[1:] == [
        f"not brought home: {reasons} and 2 more of a; also files of 1 other task",
        "declared in `outputs`, and not there at the end: model (2 of 3 tasks)",
        "not in `outputs`, so not brought home: notes.txt of a; also files of 1 other task",
    ]


def test_too_many_files_to_name_are_named_by_their_directory() -> None:
    names = [
        *(f"wandb/run/{number}" for number in range(20)),
        "lightning_logs/v0/hparams.yaml",
        "notes.txt",
    ]
    shown = ["wandb/ (20 files)", "lightning_logs/v0/hparams.yaml", "notes.txt"]
    assert counted(names, by_directory=True) == {"count": 22, "names": shown, "more": 0}
    many = [f"{letter}/{number}" for letter in "abcdefg" for number in range(2)]
    assert counted(many, by_directory=True)["more"] == 4


def test_a_run_recorded_by_an_older_version_gets_no_line(tmp_path: Path) -> None:
    ended = {"task": "a", "attempt": 1, "node": "n", "outcome": "succeeded"}
    before = {"files": 12, "bytes": 1536, "left_out": []}
    assert lines(tmp_path, archived(1), ("attempt-ended", ended), sent=before) == []


def test_malformed_counts_and_names_are_ignored(tmp_path: Path) -> None:
    broken: dict[str, Any] = {
        "brought": {"files": "x", "bytes": -1},
        "not_brought": {"names": 3},
        "undeclared": {"names": [7], "count": True},
    }
    (line,) = lines(tmp_path, left(**broken))
    assert line.endswith("none brought home")
