"""The groups of real tests: each test is of one, however it is marked."""

from __future__ import annotations

from itertools import product

from tests.together import BUSY, LOCAL, MARKS, PATIENT, chosen


def test_every_test_is_of_one_group() -> None:
    for marked in product((False, True), repeat=len(MARKS)):
        marks = dict(zip(MARKS, marked, strict=True))
        # What pytest takes is Python, too.
        groups = [group for group in (*BUSY, *PATIENT) if eval(chosen(group), marks)]
        assert groups == [next((mark for mark in MARKS if marks[mark]), LOCAL)]
