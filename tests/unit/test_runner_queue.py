"""Units that wait for their turn on the head, without Ray."""

from __future__ import annotations

from trainyard_runner.head.queue import Queue
from trainyard_runner.head.units import Unit
from trainyard_runner.wire.plan import Task
from trainyard_runner.wire.room import Room


def unit(name: str, *, cpus: float = 1.0, actors: float = 0.0) -> Unit:
    return Unit((Task(0, name, ("true",), {}, cpus=cpus, actors=Room(cpus=actors)),))


def begun(queue: Queue, like: Unit, *, window: int = 1, is_alone: bool = False) -> list[str]:
    units = queue.begin(like.tasks[0].shape, window=window, is_alone=is_alone)
    return [each.tasks[0].name for each in units]


def waiting(queue: Queue) -> list[list[str]]:
    return [[each.tasks[0].name for each in line] for line in queue.lines()]


def test_each_shape_has_a_line_of_its_own() -> None:
    queue = Queue([unit("small"), unit("large", cpus=8), unit("small too")])
    assert waiting(queue) == [["small", "small too"], ["large"]]


def test_units_share_a_task_of_rays_while_those_of_their_shape_are_quick() -> None:
    queue = Queue([unit(str(number)) for number in range(20)])
    shape = unit("").tasks[0].shape
    assert begun(queue, unit("")) == ["0"]
    queue.was_quick(shape)
    assert begun(queue, unit("")) == ["1", "2"]
    for _ in range(5):
        queue.was_quick(shape)
    assert begun(queue, unit("")) == ["3", "4", "5", "6", "7", "8", "9", "10"]
    queue.was_slow(shape)
    assert begun(queue, unit("")) == ["11"]


def test_units_share_no_task_of_rays_while_others_would_have_none() -> None:
    queue = Queue([unit(str(number)) for number in range(6)])
    queue.was_quick(unit("").tasks[0].shape)
    assert begun(queue, unit(""), window=16) == ["0"]


def test_tasks_of_a_sweep_and_tasks_with_actors_are_alone() -> None:
    plain = Queue([unit("a"), unit("b")])
    plain.was_quick(unit("").tasks[0].shape)
    assert begun(plain, unit(""), is_alone=True) == ["a"]

    with_actors = Queue([unit("a", actors=2), unit("b", actors=2)])
    with_actors.was_quick(unit("", actors=2).tasks[0].shape)
    assert begun(with_actors, unit("", actors=2)) == ["a"]


def test_a_unit_that_was_tried_before_is_tried_alone() -> None:
    queue = Queue([])
    queue.was_quick(unit("").tasks[0].shape)
    again = unit("again")
    again.attempt = 1
    for each in (again, unit("new"), unit("newer")):
        queue.add(each)
    assert begun(queue, unit("")) == ["again"]
    assert begun(queue, unit("")) == ["new", "newer"]


def test_returned_units_are_next_in_order_and_their_attempt_does_not_count() -> None:
    units = [unit("a"), unit("b"), unit("c")]
    queue = Queue(units)
    queue.was_quick(units[0].tasks[0].shape)
    assert begun(queue, units[0]) == ["a", "b"]
    queue.give_back(units[:2])
    assert waiting(queue) == [["a", "b", "c"]]
    assert [each.attempt for each in units] == [0, 0, 0]


def test_a_unit_that_lost_its_node_is_next_and_one_that_failed_is_last() -> None:
    lost, failed = unit("lost"), unit("failed")
    lost.losses = 1
    queue = Queue([unit("new")])
    queue.add_again(failed)
    queue.add_again(lost)
    assert waiting(queue) == [["lost", "new", "failed"]]


def test_units_taken_out_of_the_queue_no_longer_wait() -> None:
    queue = Queue([unit("a"), unit("b"), unit("large", cpus=8)])
    assert [each.tasks[0].name for each in queue.take_tasks({"a"})] == ["a"]
    assert [each.tasks[0].name for each in queue.take(unit("", cpus=8).tasks[0].shape)] == ["large"]
    assert queue.first(unit("", cpus=8).tasks[0].shape) is None
    assert [each.tasks[0].name for each in queue.take_all()] == ["b"]
    assert not queue
