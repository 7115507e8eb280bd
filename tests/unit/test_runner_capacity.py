"""Whether a unit fits now, and where, without Ray."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
import ray
from trainyard_runner.head.capacity import Capacity
from trainyard_runner.head.holdings import Holding
from trainyard_runner.head.placing import LivingNodes, NodeMissingError
from trainyard_runner.head.submitting import Place
from trainyard_runner.head.units import Unit
from trainyard_runner.wire.nodes import Node
from trainyard_runner.wire.plan import Gate, Plan, Task
from trainyard_runner.wire.room import Room


class Nothing:
    """The requests of a run's tasks in flight that have just begun."""

    def open(self) -> list[Any]:
        return []

    def ray_tasks(self) -> list[Any]:
        return []

    def kept_free(self) -> dict[str, float]:
        return {}


class Others:
    """The capacity that other runs hold."""

    def __init__(self, *holdings: Holding) -> None:
        self._holdings = holdings

    def others(self) -> Sequence[Holding]:
        return self._holdings


def node(name: str, *, cpus: float = 4) -> Node:
    return Node(name, name, "workers", "10.0.0.1", {"CPU": cpus})


def task(name: str = "a", **asked: Any) -> Task:
    return Task(0, name, ("true",), {}, **asked)


def capacity(*there: Node, others: Others | None = None) -> Capacity:
    nodes = LivingNodes()
    nodes.known = there
    plan = cast("Plan", type("AnyPlan", (), {"run": "run", "gate": Gate()})())
    return Capacity(
        plan,
        nodes=nodes,
        in_flight=cast("Any", Nothing()),
        holdings=cast("Any", others or Others()),
    )


def test_ray_alone_decides_while_no_task_wants_room_for_actors() -> None:
    others = Others(Holding("other", {"n1": {"CPU": 4.0}}))
    assert capacity(node("n1"), others=others).place(Unit((task(cpus=4),))) == Place([None])


def test_a_unit_waits_for_what_others_want_free() -> None:
    kept = Others(Holding("other", {"n1": {"CPU": 1.0}}, {"CPU": 2.0}))
    there = capacity(node("n1"), others=kept)
    assert there.place(Unit((task(cpus=1),))) == Place([None])
    assert there.place(Unit((task(cpus=2),))) is None


def test_a_unit_waits_for_the_room_that_it_wants_itself() -> None:
    wishes = task(cpus=1, actors=Room(cpus=4))
    assert capacity(node("n1")).place(Unit((wishes,))) is None
    assert capacity(node("n1"), node("n2")).place(Unit((wishes,))) == Place([None])


def test_a_share_is_of_nodes_of_one_size() -> None:
    place = capacity(node("n1")).place(Unit((task(share=0.5),)))
    assert place is not None
    assert [one and one.nodes for one in place.among] == [(node("n1"),)]


def test_a_gang_whose_shares_never_fit_at_once_has_no_place() -> None:
    gang = Unit((task("a", share=1.0), task("b", share=1.0)))
    with pytest.raises(NodeMissingError, match="2 tasks that run together do not fit at once"):
        capacity(node("n1")).place(gang)


def test_twice_what_fits_is_submitted_and_at_least_sixteen() -> None:
    assert capacity(node("n1")).window(task(cpus=1)) == 16
    assert capacity(node("n1", cpus=64)).window(task(cpus=1)) == 128


def test_a_task_that_fits_no_node_is_given_up_after_an_idle_minute() -> None:
    there = capacity(node("n1"))
    assert there.why_never(task(cpus=8), idle=59) is None
    assert there.why_never(task(cpus=4), idle=3600) is None
    why = there.why_never(task(cpus=8), idle=60)
    assert why == (
        "no node of the cluster has what it asks for (8 CPUs); the largest node has 4 CPUs, 0 GPUs"
    )


def as_ray_says(name: str, *, alive: bool = True) -> dict[str, Any]:
    return {
        "Alive": alive,
        "NodeID": name,
        "NodeName": name,
        "NodeManagerAddress": "10.0.0.1",
        "Resources": {"CPU": 4.0},
    }


def test_nodes_are_told_apart_from_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    first, dead = as_ray_says("n1"), as_ray_says("n0", alive=False)
    answers = [[first], [dead, first], [as_ray_says("n2"), first]]
    monkeypatch.setattr(ray, "nodes", lambda: answers.pop(0))
    nodes = LivingNodes()
    assert [nodes.look() for _ in range(3)] == [True, False, True]
    assert [each.name for each in nodes.known] == ["n1", "n2"]
