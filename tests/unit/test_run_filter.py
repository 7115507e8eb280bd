"""Which runs `train.list` shows."""

from __future__ import annotations

import pytest

from trainyard.errors import RequestError
from trainyard.results.run_filter import run_filter

RECORD = {"job": "cartpole", "started": "1970-01-01T00:10:00+00:00"}


@pytest.mark.parametrize(
    ("flags", "taken"),
    [
        ({}, True),
        ({"job": "cartpole"}, True),
        ({"job": "jobs/cartpole/"}, True),
        ({"job": "cart"}, False),
        ({"since": "5m"}, True),
        ({"since": "299s"}, False),
    ],
)
def test_a_run_is_shown_that_is_what_every_flag_asks_for(flags: dict[str, str], taken: bool) -> None:
    found = run_filter(**{"job": "", "state": "", "since": "", **flags}, now=900.0)
    assert found.takes(RECORD) is taken


def test_a_state_and_an_age_that_do_not_exist_are_refused_at_once() -> None:
    with pytest.raises(RequestError) as caught:
        run_filter(job="", state="suceeded", since="2 weeks", now=0.0)
    assert caught.value.lines() == [
        "there are no such runs",
        "  - --state: one of: waiting, running, succeeded, failed, stopped; did you mean 'succeeded'?",
        "  - --since: must be a duration such as 90s, 5m, 2h or 1d (units: s, m, h, d), at most 3650d",
    ]
