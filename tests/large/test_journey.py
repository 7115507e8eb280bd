"""The fate of a job's files: 10,000 random journeys, different in each run of the tests."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.deeds import Deed
from tests.journey import check, journeys


@pytest.mark.timeout(3000)
@settings(max_examples=10_000, deadline=None, database=None, print_blob=True)
@journeys
def test_a_file_is_found_where_the_page_says(
    job: list[Deed], first: list[Deed], second: list[Deed], declared: list[str]
) -> None:
    check(job, first, second, declared)
