"""Each attempt has files of its own: no other task, attempt or run sees them, and none are lost."""

from __future__ import annotations

import pytest

from tests.real import own_files
from tests.real.yard import Yard


@pytest.mark.core
def test_no_attempt_finds_another_s_files_and_weights_in_place_come_home(yard: Yard) -> None:
    own_files.of_a_matrix_with_retries(yard)


def test_tasks_that_run_together_have_files_of_their_own(yard: Yard) -> None:
    own_files.of_tasks_together(yard)


def test_files_of_actors_are_found_by_no_other_task_and_no_later_run(yard: Yard) -> None:
    own_files.of_actors(yard)
