"""The fate of a job's files: 100 journeys; `make test-large PART=journey` makes 10,000."""

from __future__ import annotations

from hypothesis import settings

from tests.deeds import Deed
from tests.journey import check, journeys


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@journeys
def test_a_file_is_found_where_the_page_says(
    job: list[Deed], first: list[Deed], second: list[Deed], declared: list[str]
) -> None:
    check(job, first, second, declared)
