"""Since when a cluster is silent, where something on the way there was silent too."""

from __future__ import annotations

from trainyard.dispatch.follow import OUT_OF_REACH_SECONDS, silent_since


def test_a_cluster_is_silent_since_its_last_answer_if_the_way_was_never_closed() -> None:
    assert silent_since(100.0, 0.0) == 100.0


def test_while_the_way_was_closed_the_cluster_was_not_silent() -> None:
    assert silent_since(100.0, 131.0) == 131.0


def test_a_way_that_was_closed_before_the_last_answer_does_not_count() -> None:
    assert silent_since(100.0, 60.0) == 100.0


def test_a_way_that_stays_closed_is_given_up_too() -> None:
    assert silent_since(100.0, 1000.0) == 100.0 + OUT_OF_REACH_SECONDS
