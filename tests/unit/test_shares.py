"""A share of one node: how much it is, and which node it is of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from trainyard_runner.wire import nodes, shares
from trainyard_runner.wire.nodes import Node
from trainyard_runner.wire.plan import ExpectedNode, Gate, Task
from trainyard_runner.wire.shares import Asked

GIB = 2**30
SMALL = Node("1", "small-0", "small", "192.0.2.1", {"CPU": 4, "GPU": 2, "memory": 8 * GIB})
LARGE = Node("2", "large-0", "large", "192.0.2.2", {"CPU": 8, "GPU": 3, "memory": 32 * GIB})
CPU = Node("3", "head", "head", "192.0.2.3", {"CPU": 2, "memory": 2 * GIB})


def task(share: float = 1, **more: Any) -> Task:
    return Task(0, "a", ("train",), {}, share=share, **more)


def nothing_free() -> Mapping[str, Mapping[str, float]]:
    return {}


@pytest.mark.parametrize(
    ("share", "total", "part"),
    [
        (1, {"CPU": 8, "GPU": 4, "memory": 1000}, {"CPU": 8, "GPU": 4, "memory": 1000}),
        (1 / 3, {"CPU": 8, "GPU": 3, "memory": 1000}, {"CPU": 2.6666, "GPU": 1, "memory": 333}),
        # Ray has no 1.5 GPUs.
        (0.5, {"CPU": 3, "GPU": 3}, {"CPU": 1.5, "GPU": 1, "memory": 0}),
        (1 / 49, {"CPU": 49, "GPU": 49}, {"CPU": 1, "GPU": 1, "memory": 0}),
        (0.25, {"CPU": 2, "GPU": 1}, {"CPU": 0.5, "GPU": 0.25, "memory": 0}),
    ],
)
def test_a_share_is_rounded_down_to_what_ray_can_give(
    share: float, total: dict[str, float], part: dict[str, float]
) -> None:
    assert nodes.share_of(total, share) == part
    parts = round(1 / share)
    assert all(part[name] * parts <= total.get(name, 0) for name in part)


def test_as_many_shares_fit_on_a_node_as_it_has() -> None:
    assert [nodes.slots(task(share), [SMALL]) for share in (1, 0.5, 0.25)] == [1, 2, 4]
    # A third of two GPUs is 0.67 of one, and of these there is one on each.
    assert nodes.slots(task(1 / 3), [SMALL]) == 2
    half_used = nodes.with_free(SMALL, {"CPU": 2, "GPU": 1, "memory": 4 * GIB})
    assert [nodes.slots(task(share), [half_used]) for share in (1, 0.5)] == [0, 1]


def test_a_share_is_of_a_node_with_gpus_if_any_unless_it_is_placed() -> None:
    found = shares.settled([task(), task(node_group="head")], Gate(), [CPU, SMALL])
    assert [each.on_gpus for each in found] == [True, False]
    assert [
        nodes.slots(each, [CPU]) for each in (found[0], replace(found[1], node_group="head"))
    ] == [0, 1]
    assert not shares.settled([task()], Gate(), [CPU])[0].on_gpus
    later = Gate(nodes=(ExpectedNode("burst-?1", "burst", 8, 1, optional=True),))
    assert shares.settled([task()], later, [CPU])[0].on_gpus


def test_nodes_of_one_size_are_left_to_ray_with_the_smallest_memory() -> None:
    (only,) = shares.alike(
        task(0.5), [SMALL, replace(SMALL, resources={**SMALL.resources, "memory": 7 * GIB})]
    )
    assert only.labels == {}
    taken = only.taken(task(0.5))
    assert (taken.cpus, taken.gpus, taken.memory, taken.share) == (2, 1, 3.5 * GIB, None)


def test_a_node_that_an_autoscaler_adds_counts_with_its_declared_size() -> None:
    later = Node("", "burst-?1", "burst", "", {"CPU": 8, "GPU": 1, "memory": nodes.UNLIMITED})
    (only,) = shares.alike(task(), [later])
    assert (only.taken(task()).cpus, only.taken(task()).memory) == (8, None)


def test_a_node_to_come_is_as_large_as_its_group_or_as_declared() -> None:
    later = [Node("", f"{group}-?1", group, "", {"CPU": 0, "GPU": 1}) for group in ("small", "new")]
    assert [nodes.slots(task(), [node]) for node in shares.places([SMALL], later)] == [1, 1, 0]


def test_labels_keep_each_share_to_nodes_of_one_size() -> None:
    small, large = shares.alike(task(), [SMALL, LARGE])
    assert (small.labels, large.labels) == (
        {"ray.io/node-group": "in(small)"},
        {"ray.io/node-group": "in(large)"},
    )
    unnamed = [replace(node, group=None) for node in (SMALL, LARGE)]
    assert [each.labels for each in shares.alike(task(), unnamed)] == [
        {"ray.io/node-id": "in(1)"},
        {"ray.io/node-id": "in(2)"},
    ]


def test_the_next_share_is_of_nodes_that_have_room_now() -> None:
    free = {"1": {"CPU": 1.0}, "2": LARGE.resources}
    chosen = shares.chosen(task(), [SMALL, LARGE], {}, lambda: free)
    assert chosen and chosen.nodes == (LARGE,)


def test_no_more_shares_are_asked_for_than_there_are() -> None:
    (only,) = shares.alike(task(0.5), [SMALL])
    assert shares.chosen(task(0.5), [SMALL], {only.size: Asked(1, 1)}, nothing_free) == only
    assert shares.chosen(task(0.5), [SMALL], {only.size: Asked(2, 0)}, nothing_free) is None


def test_a_gang_of_shares_is_dealt_to_nodes_on_which_all_fit() -> None:
    def names(found: list[shares.Alike] | None) -> list[str] | None:
        return None if found is None else [each.nodes[0].name for each in found]

    assert names(shares.together([task()] * 2, [SMALL, LARGE], nothing_free)) == [
        "small-0",
        "large-0",
    ]
    free = {"1": SMALL.resources}
    both_halves = shares.together([task(0.5)] * 2, [LARGE, SMALL], lambda: free)
    assert names(both_halves) == ["small-0", "small-0"]
    assert shares.together([task()] * 3, [SMALL, LARGE], nothing_free) is None
