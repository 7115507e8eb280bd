"""Reading the process table: this process is the example."""

from __future__ import annotations

import os
from pathlib import Path

from trainyard_runner import proctree


def test_files_open_for_writing_are_told_from_those_open_for_reading(tmp_path: Path) -> None:
    read = tmp_path / "read"
    read.write_text("x")
    with (tmp_path / "written").open("w"), (tmp_path / "both").open("w+"), read.open():
        found = proctree.files_open_for_writing([os.getpid()], str(tmp_path))
    assert found == {str(tmp_path / "written"), str(tmp_path / "both")}


def test_the_parent_of_a_process_is_found() -> None:
    assert proctree.parent(os.getpid()) == os.getppid()


def test_what_is_gone_has_no_parent_and_no_descendants() -> None:
    assert proctree.parent(2**22 + 1) == 0
    assert proctree.descendants(2**22 + 1) == []
