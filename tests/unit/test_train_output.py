"""What a person reads at the end of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

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
