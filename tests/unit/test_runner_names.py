"""Names of records: readable, safe, and different for different tasks."""

from __future__ import annotations

import pytest
from trainyard_runner import names


@pytest.mark.parametrize("task", ["train", "seed=0,lr=0.1", "a+b_c-d.e", "x" * 100])
def test_a_safe_name_stays_as_it_is(task: str) -> None:
    assert names.file_stem(task) == task


@pytest.mark.parametrize(
    "task", ["a/b", "../up", "a b", "größe", "x" * 101, "", "a\nb", "\udc80", ".", "..", ".hidden"]
)
def test_any_other_name_becomes_safe_and_keeps_a_mark_of_its_own(task: str) -> None:
    stem = names.file_stem(task)
    assert stem != task
    assert "/" not in stem
    assert not stem.startswith(".")
    assert len(stem) <= 109


def test_names_that_look_alike_do_not_meet() -> None:
    assert names.file_stem("a/b") != names.file_stem("a b")
    assert names.file_stem("x" * 101) != names.file_stem("x" * 102)


def test_records_have_their_places() -> None:
    assert names.output_archive("seed=0", 2) == "outputs/seed=0.2.tar"
    assert names.checkpoint_archive("seed=0") == "checkpoints/seed=0.tar"
    assert names.segment(12) == "stream.000012.jsonl"
