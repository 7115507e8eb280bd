"""What Docker Compose says, in our words."""

from __future__ import annotations

from trainyard.seams.docker import compose as docker_compose


def test_the_reason_is_what_stands_after_the_reports_about_containers() -> None:
    said = (
        " Network trainyard-lab  Created",
        " Container trainyard-lab-head  Starting",
        "Error response from daemon: Bind for 127.0.0.1:8265 failed: port is already allocated",
    )
    assert docker_compose.reason(said) == (
        "Error response from daemon: Bind for 127.0.0.1:8265 failed: port is already allocated"
    )


def test_words_that_are_not_known_are_shown_as_they_are() -> None:
    assert docker_compose.reason(("no configuration file", "provided")) == "no configuration file\nprovided"
    assert docker_compose.reason(()) == "it said nothing"
