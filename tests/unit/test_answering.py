from __future__ import annotations

from trainyard.backends.ray_nodes import is_predecessor
from trainyard.seams.ray_types import Node, node_from

ROW = {"node_id": "1", "node_name": "cpu-0", "state": "ALIVE", "start_time_ms": 1_700_000_005_000}


def joined(when: float | None) -> Node:
    return Node("1", "cpu-0", "192.0.2.1", is_head=False, alive=True, cpus=1, gpus=0, started=when)


def test_a_node_says_when_it_joined() -> None:
    assert node_from(ROW).started == 1_700_000_005.0
    assert node_from({**ROW, "start_time_ms": 0}).started is None


def test_a_node_that_joined_before_its_container_was_started_is_the_one_before() -> None:
    assert is_predecessor(joined(100.0), {"cpu-0": 130.0})


def test_a_node_that_joined_after_its_container_was_started_is_that_container_s() -> None:
    assert not is_predecessor(joined(133.0), {"cpu-0": 130.0})
    # The start of a process is known to a second.
    assert not is_predecessor(joined(129.5), {"cpu-0": 130.0})


def test_where_nothing_is_known_of_the_start_a_node_is_what_ray_says() -> None:
    assert not is_predecessor(joined(None), {"cpu-0": 130.0})
    assert not is_predecessor(joined(100.0), {})
