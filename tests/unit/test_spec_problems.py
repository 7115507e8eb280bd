from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.errors import RequestError
from trainyard.spec.load import load_job


def refusal(directory: Path, text: str) -> RequestError:
    (directory / "job.yaml").write_text(text)
    with pytest.raises(RequestError) as refused:
        load_job(directory)
    return refused.value


def test_problems_stand_in_the_order_of_the_file(tmp_path: Path) -> None:
    error = refusal(tmp_path, "timeout: 5\nretries: -1\ncommand: [a.py, 1]\nzzz: 1\nenv: {A: 1}\n")

    assert [problem.where.rpartition(" ")[2] for problem in error.problems] == [
        "timeout",
        "retries",
        "command.1",
        "zzz",
        "env.A",
    ]


def test_a_thousand_problems_are_counted_and_a_hundred_shown(tmp_path: Path) -> None:
    error = refusal(tmp_path, f"command: [{', '.join(['1'] * 1000)}]\n")

    assert error.what == "the job file is wrong: 1,000 problems"
    assert len(error.problems) == 100
    assert error.lines()[-1] == "  -> 900 more problems are not shown."


def test_a_value_is_cut_and_cannot_move_the_cursor(tmp_path: Path) -> None:
    (problem,) = refusal(tmp_path, f'command: "\\e[2J\\u202e{"x" * 1000}"\n').problems

    assert problem.message == f'must be a list, got "\\u001b[2J\\u202e{"x" * 44}...'


def test_a_job_is_not_told_to_give_its_name(tmp_path: Path) -> None:
    (problem,) = refusal(tmp_path, "command: [a.py]\nnam: x\n").problems

    assert "did you mean" not in problem.message
