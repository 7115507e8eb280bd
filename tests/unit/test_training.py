"""train.dispatch reads two files at once, and speaks of its flags as they were typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard import training
from trainyard.dispatch.looking import Standing
from trainyard.errors import RequestError
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory


def test_a_flag_for_the_cluster_file_is_named_as_it_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab.yaml").write_text("{name: lab, backend: local}")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "job.yaml").write_text("command: [sleep, '1']")
    flags = ["cluster.head.cpus=x", "retries=x"]
    with pytest.raises(RequestError) as caught:
        training.ready("job", ["lab.yaml"], overrides=flags, backend=None)
    assert [problem.where for problem in caught.value.problems] == ["--set cluster.head.cpus", "--set retries"]


def standing(name: str, state: str, *, unsure: str | None = None) -> Standing:
    found = RunState(run=name, cluster="lab", job="job", tasks=())
    if state == "ended":
        found.apply({"event": "run-ended", "state": "succeeded", "exit": 0, "seconds": 1.0, "time": 1.0})
    return Standing(RunDirectory(Path(name)), found, unsure=unsure)


def test_the_only_run_that_goes_on_is_the_one_to_stop() -> None:
    gone = standing("gone-1", "running", unsure="cluster unreachable")
    assert training.the_open_run([standing("a-2", "ended"), standing("a-1", "running"), gone]) == "a-1"
    assert training.the_open_run([gone]) == "gone-1"
    assert training.the_open_run([standing("a-2", "ended")]) is None


def test_of_several_runs_that_go_on_none_is_chosen() -> None:
    with pytest.raises(RequestError) as caught:
        training.the_open_run([standing("a-2", "running"), standing("a-1", "running")])
    assert str(caught.value) == (
        "2 runs go on\n  - RUN: one of: a-2, a-1\n  -> Name the one to end: invoke train.stop a-2"
    )
