"""What a guard says of a program that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainyard_runner import guard


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("/no/such/program", "no such program on the node"),
        ("./no-such-program", "no such program in the task's directory"),
        ("no-such-program", "no such program on the node's PATH (/nowhere)"),
    ],
)
def test_a_missing_program_is_missing_where_it_was_looked_for(program: str, words: str) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        guard._find(program, "/nowhere")
    assert caught.value.strerror == words


def test_a_file_that_may_not_be_run_is_no_program(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    with pytest.raises(PermissionError, match="not an executable file"):
        guard._find(str(plain), "")
