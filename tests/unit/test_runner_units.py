"""What counts as a retry, what does not, and when it is over."""

from __future__ import annotations

from trainyard_runner.plan import Task
from trainyard_runner.units import MOST_LOSSES, Unit


def task(name: str = "t", *, retries: int = 0) -> Task:
    return Task(index=0, name=name, command=("true",), env={}, retries=retries)


def tried(unit: Unit, *outcomes: str) -> bool:
    unit.begin()
    for one, outcome in zip(unit.tasks, outcomes, strict=True):
        unit.ended(one, outcome)
    return unit.may_try_again()


def test_a_failure_uses_a_retry() -> None:
    unit = Unit((task(retries=1),))
    assert tried(unit, "failed")
    assert not tried(unit, "timeout")
    assert unit.states() == {"t": "failed"}


def test_a_lost_node_uses_none_but_not_for_ever() -> None:
    unit = Unit((task(),))
    assert all(tried(unit, "lost") for _ in range(MOST_LOSSES))
    assert not tried(unit, "lost")
    assert unit.states() == {"t": "failed"}


def test_success_and_stop_are_not_tried_again() -> None:
    unit = Unit((task(retries=5),))
    assert not tried(unit, "succeeded")
    assert not tried(unit, "stopped")


def test_what_cannot_get_better_is_not_tried_again() -> None:
    unit = Unit((task(retries=5),))
    unit.begin()
    unit.ended(unit.tasks[0], "failed", is_final=True)
    assert not unit.may_try_again()


def test_a_gang_is_judged_by_the_first_that_failed() -> None:
    first, second = task("a", retries=1), task("b")
    unit = Unit((first, second))
    unit.begin()
    unit.ended(first, "failed")
    assert not unit.is_over
    unit.ended(second, "stopped")
    assert unit.is_over
    assert unit.may_try_again()
    assert not tried(unit, "failed", "stopped")
    assert unit.states() == {"a": "failed", "b": "stopped"}
