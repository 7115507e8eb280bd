"""Requests to Ray that cannot be met: said once, after a while, and taken back."""

from __future__ import annotations

from trainyard_runner.head.demand import Demand, DemandWatch, explain, shape
from trainyard_runner.head.drivers import Connected
from trainyard_runner.wire.events import DriversWaiting, Event
from trainyard_runner.wire.plan import Task

ONE = shape({"CPU": 1.0, "CPU_group_0_abc": 1.0})
FREE = {"CPU": 0.0, "memory": 2.0**30}
TOTAL = {"CPU": 6.0, "memory": 4 * 2.0**30}
NOTHING = Demand({}, {}, FREE, TOTAL)
THREE = Demand({ONE: 3}, {}, FREE, TOTAL)
PPO = Connected(("ppo",))


def task(cpus: float) -> Task:
    return Task(0, "t", ("true",), {}, cpus=cpus)


def test_the_runner_s_own_submissions_are_not_what_commands_wait_for() -> None:
    assert explain(THREE, PPO, [task(1), task(1)]) == (
        "pending in Ray for task ppo: 1 request for 1 CPU; 0 of 6 CPUs free"
    )
    assert explain(THREE, PPO, [task(1)] * 3) == ""
    assert explain(THREE, PPO, [task(2)]).startswith("pending in Ray for task ppo: 3 requests for")


def test_requests_possibly_of_another_program_are_not_blamed_on_the_run() -> None:
    assert explain(THREE, Connected(("ppo",), has_others=True), []) == (
        "pending in Ray for task ppo, or another program on this cluster: "
        "3 requests for 1 CPU each; 0 of 6 CPUs free"
    )


def test_placement_groups_and_each_resource_are_named() -> None:
    group = Demand({}, {shape({"CPU": 8.0, "memory": 2.0**31}): 1}, FREE, TOTAL)
    assert explain(group, Connected(("a", "b")), []) == (
        "pending in Ray for one of a, b: 1 placement group for 8 CPUs, 2 GiB; "
        "0 of 6 CPUs free, 1 of 4 GiB free"
    )


def test_tasks_beyond_three_are_counted() -> None:
    text = explain(THREE, Connected(("a", "b", "c", "d", "e")), [])
    assert text.startswith("pending in Ray for one of a, b, c and 2 more: 3 requests for 1 CPU")


def test_a_demand_is_said_after_a_while_and_taken_back_with_few_questions() -> None:
    now = [0.0]
    written: list[Event] = []
    asked: list[float] = []
    demands = {0.0: THREE, 5.0: THREE, 10.0: THREE, 15.0: NOTHING}

    def ask() -> Demand:
        asked.append(now[0])
        return demands[now[0]]

    watch = DemandWatch(written.append, ask=ask, clock=lambda: now[0])

    for now[0] in (0.0, 1.0, 5.0, 10.0, 12.0, 15.0):
        if watch.is_due():
            watch.look(lambda: PPO, [])

    assert asked == [0.0, 5.0, 10.0, 15.0]
    first, second = written
    assert isinstance(first, DriversWaiting) and first.text.startswith("pending in Ray for task pp")
    assert not first.again
    assert second == DriversWaiting("")
    now[0] = 20.0
    watch.look(Connected, [])
    assert len(asked) == 4


def test_a_wait_for_another_resource_is_no_repeated_one() -> None:
    now = [0.0]
    written: list[Event] = []
    fewer = Demand({shape({"CPU": 1.0}): 1}, {}, FREE, TOTAL)
    gpu = Demand({shape({"GPU": 1.0}): 1}, {}, FREE, TOTAL)
    demands = iter([THREE, THREE, THREE, fewer, gpu])
    watch = DemandWatch(written.append, ask=lambda: next(demands), clock=lambda: now[0])
    for now[0] in (0.0, 5.0, 10.0, 15.0, 20.0):
        watch.look(lambda: PPO, [])

    assert [each.again for each in written if isinstance(each, DriversWaiting)] == [
        False,
        True,
        False,
    ]
