"""Which nodes are the cluster, where some come and go and others get new names."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from trainyard_runner import members, rungs, stuck
from trainyard_runner.nodes import HEAD as HEAD_RESOURCE
from trainyard_runner.nodes import Node
from trainyard_runner.plan import ExpectedNode, Gate, Task
from trainyard_runner.room import room
from trainyard_runner.rungs import Answer

HEAD = Node("0", "head", "head", "192.0.2.1", {"CPU": 1, HEAD_RESOURCE: 1})
OTHER = Node("9", "theirs", "other", "192.0.2.9", {"CPU": 1})


def node(name: str, **resources: float) -> Node:
    return Node(name, name, name.partition("-")[0], "192.0.2.2", {"CPU": 2, **resources})


def gate(*nodes: ExpectedNode, **more: bool) -> Gate:
    return Gate(nodes=(ExpectedNode("head", "head"), *nodes), **{"names_change": True, **more})  # type: ignore[arg-type]


TWO = gate(ExpectedNode("gpu-a", "gpu", 2, 1), ExpectedNode("gpu-b", "gpu", 2, 1))
GROWING = gate(
    ExpectedNode("burst-a", "burst", 2),
    ExpectedNode("burst-?2", "burst", 2, optional=True),
    ExpectedNode("burst-?3", "burst", 2, optional=True),
)


def missing(which: Gate, *there: Node) -> list[str]:
    return [one.name for one in members.missing(which, there)]


def test_a_node_that_was_made_anew_stands_for_the_one_before() -> None:
    assert missing(TWO, HEAD, node("gpu-a"), node("gpu-c")) == []
    assert missing(TWO, HEAD, node("gpu-c")) == ["gpu-b"]
    assert missing(TWO, HEAD, node("cpu-x"), node("gpu-a")) == ["gpu-b"]


def test_where_names_stay_each_node_counts_for_itself() -> None:
    fixed = replace(TWO, names_change=False)
    assert missing(fixed, HEAD, node("gpu-a"), node("gpu-c")) == ["gpu-b"]


def test_nodes_that_were_added_since_are_tested_too() -> None:
    added = node("burst-z")
    assert members.declared(GROWING, [HEAD, node("burst-a"), added, OTHER]) == [HEAD, node("burst-a"), added]


def test_a_node_that_was_removed_since_is_made_up_for_by_any_of_its_group() -> None:
    assert missing(GROWING, HEAD, node("burst-z")) == []
    assert missing(GROWING, HEAD) == ["burst-a"]


def test_an_optional_node_that_is_there_stands_in_for_one_that_is_not() -> None:
    which = gate(ExpectedNode("burst-a", "burst"), ExpectedNode("burst-b", "burst", optional=True))
    assert missing(which, HEAD, node("burst-b")) == []


def test_a_silent_node_that_left_is_no_failure_where_nodes_come_and_go() -> None:
    silent = Answer(node("burst-z"), None, 24.0, problem="TaskUnschedulableError")
    assert rungs.without_gone([silent], [HEAD], GROWING) == []
    needed = Answer(node("gpu-a"), None, 24.0, problem="TaskUnschedulableError")
    (kept,) = rungs.without_gone([needed], [HEAD], TWO)
    assert kept.problem == "it left the cluster while it was asked"


def test_what_may_be_added_is_what_is_not_there_yet() -> None:
    assert len(members.later(GROWING, [HEAD])) == 2
    assert len(members.later(GROWING, [HEAD, node("burst-a")])) == 2
    assert len(members.later(GROWING, [HEAD, node("burst-x"), node("burst-y"), node("burst-z")])) == 0


def test_a_gang_counts_with_the_nodes_that_may_be_added_and_no_more() -> None:
    tasks = [Task(index, f"t{index}", ("true",), {}, cpus=2, node_group="burst") for index in range(4)]
    there = [HEAD, node("burst-a")]
    fits = room(tasks[:3], GROWING, there, together=True)
    assert fits is not None
    assert fits.ok
    over = room(tasks, GROWING, there, together=True)
    assert over is not None
    assert not over.ok


def test_a_node_without_a_name_of_its_own_has_its_groups_gpus() -> None:
    assert members.gpus(TWO, node("gpu-z", GPU=2)) == 1
    assert members.gpus(TWO, HEAD) == 0
    assert members.gpus(Gate(), node("gpu-z", GPU=2)) == 2


def test_a_task_for_a_node_that_is_not_there_says_which_are() -> None:
    task = Task(0, "t", ("true",), {}, node_name="gpu-0")
    found = room([task], TWO, [HEAD, node("gpu-a")], together=False)
    assert found is not None
    assert (found.ok, found.detail, found.hint) == (
        False,
        "task 't' is to run on node gpu-0, and there are head, gpu-a",
        "Nodes of this cluster get their names as they are made: say `node: {group: ...}` in the job file.",
    )


def gpu_task(**more: Any) -> Task:
    return Task(0, "t", ("true",), {}, **{"gpus": 1, **more})


def test_a_lost_node_of_a_fixed_group_is_waited_for_as_long_as_it_may_take_to_make_it_anew() -> None:
    there = [HEAD, node("gpu-b")]
    only = gate(ExpectedNode("gpu-a", "gpu", 2, 1))
    assert stuck.patience(gpu_task(), only, [HEAD]) == stuck.MADE_ANEW
    assert stuck.without_growth(gpu_task(node_group="gpu"), only, [HEAD]) == stuck.MADE_ANEW
    assert stuck.missing(gpu_task(), only, [HEAD]) == "the node that was lost has not been made anew yet"
    # Too large for what comes back, another group, or a name that nobody will have again.
    assert stuck.patience(gpu_task(gpus=2), TWO, there) == stuck.LEAST
    assert stuck.patience(gpu_task(node_group="cpu"), TWO, there) == stuck.LEAST
    assert stuck.patience(gpu_task(node_name="gpu-a"), only, [HEAD]) == stuck.LEAST


def test_nobody_makes_a_node_anew_where_names_stay_or_none_is_missing() -> None:
    assert stuck.patience(gpu_task(), replace(TWO, names_change=False), [HEAD]) == stuck.LEAST
    assert stuck.patience(gpu_task(gpus=4), TWO, [HEAD, node("gpu-x"), node("gpu-y")]) == stuck.LEAST


def test_an_autoscaler_is_waited_for_without_end() -> None:
    task = gpu_task(gpus=0, cpus=2, node_group="burst")
    assert stuck.patience(task, GROWING, [HEAD, node("burst-a")]) == math.inf
    assert stuck.missing(task, GROWING, [HEAD]) == "Ray's autoscaler has not added a node with that yet"
