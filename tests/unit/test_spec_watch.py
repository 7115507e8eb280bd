from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.errors import RequestError
from trainyard.spec.expand import expand
from trainyard.spec.load import load_job

JOB = "command: [a.py, '{seed}']\nmatrix: {seed: [0, 1]}\n"
WATCH = {
    "metric": "rewards/time",
    "source": "auto",
    "path": None,
    "uri": None,
    "step": "step",
    "first": 600.0,
    "silence": 300.0,
    "constant": None,
}


def watches(directory: Path, text: str) -> list[object]:
    directory.mkdir(exist_ok=True)
    (directory / "job.yaml").write_text(JOB + text)
    return [task.watch for task in expand(load_job(directory))]


def test_a_job_that_names_no_metric_is_not_watched(tmp_path: Path) -> None:
    assert watches(tmp_path, "") == [None, None]


def test_every_task_is_watched_and_of_tasks_that_run_together_the_first(tmp_path: Path) -> None:
    text = "watch: {metric: rewards/time, silence: 5m}\n"
    assert watches(tmp_path, text) == [WATCH, WATCH]
    assert watches(tmp_path, text + "together: true\n") == [WATCH, None]


@pytest.mark.parametrize(
    ("watch", "message"),
    [
        ("{first: 5m}", "watch.metric: is missing"),
        ("{metric: r, source: file}", "watch.path: is missing: source: file reads it"),
        ("{metric: r, path: m.csv}", "watch.path: is for source: file or mlflow, not auto"),
        (
            "{metric: r, source: file, path: ../m.csv}",
            "watch.path: must be a path inside the task's directory",
        ),
        (
            "{metric: r, source: stdout, uri: 'http://127.0.0.1:5000'}",
            "watch.uri: is for source: mlflow",
        ),
        (
            "{metric: r, constant: 0}",
            "watch.constant: must be a duration such as 90s, 5m, 2h or 1d",
        ),
    ],
)
def test_a_watch_that_cannot_be_meant_is_refused(watch: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError) as refused:
        watches(tmp_path, f"watch: {watch}\n")
    assert message in "\n".join(str(problem) for problem in refused.value.problems) + str(
        refused.value
    )
