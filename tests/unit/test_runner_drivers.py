"""Drivers that tasks' commands started through Ray: waited for, removed, and noted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest
from trainyard_runner.head.drivers import (
    PATIENCE,
    Connected,
    Drivers,
    Left,
    RayJob,
    held,
    remove_what_dead_runs_left,
)
from trainyard_runner.wire.driver import Driver


@dataclass
class FakeRay:
    """A cluster with these jobs; what is removed is gone at the next look."""

    found: list[RayJob]
    there: dict[bytes, Left] = field(default_factory=dict)

    def jobs(self) -> list[RayJob]:
        return self.found

    def left(self, job_ids: Iterable[bytes]) -> Left:
        lefts = [self.there[job_id] for job_id in job_ids if job_id in self.there]
        return lefts[0] if lefts else Left()

    def remove(self, left: Left) -> None:
        self.there = {job_id: each for job_id, each in self.there.items() if each != left}

    def held(self, job_id: bytes) -> list[tuple[str, Mapping[str, float]]]:
        return [("id-1", {"CPU": 1.0}), ("id-1", {"CPU": 0.5}), ("id-2", {"GPU": 1.0})]


def driver(number: int, *, task: str = "ppo", attempt: int = 1, is_dead: bool) -> RayJob:
    return RayJob(bytes([number]), is_dead, Driver("run-1", task, attempt), "")


def run(name: str, *, is_dead: bool) -> RayJob:
    return RayJob(name.encode(), is_dead, None, name)


def test_an_attempt_continues_after_its_driver_and_its_leftovers_go() -> None:
    ray = FakeRay(
        [driver(1, is_dead=False), driver(2, attempt=2, is_dead=False)],
        {b"\1": Left((b"a", b"b"), (b"g",))},
    )
    now = [0.0]
    notes: list[str] = []
    through: list[str] = []
    drivers = Drivers("run-1", notes.append, cluster=ray, clock=lambda: now[0])
    drivers.wait_for_end("ppo", 1, lambda: through.append("ppo"))
    drivers.wait_for_end("alone", 1, lambda: through.append("alone"))
    drivers.look()
    assert through == ["alone"]
    ray.found = [driver(1, is_dead=True), driver(2, attempt=2, is_dead=False)]

    for now[0] in (1.0, 2.0):
        drivers.look()

    assert (through, bool(drivers)) == (["alone", "ppo"], False)
    assert notes == [
        "ppo: attempt 1 left 2 detached actors and 1 detached placement group: removed"
    ]


@pytest.mark.parametrize(
    ("other", "has_others"),
    [
        (RayJob(b"\2", False, Driver("run-2", "sac", 1), ""), True),
        (RayJob(b"\2", False, None, "raysubmit_1", is_foreign=True), True),
        (RayJob(b"\2", True, None, "raysubmit_1", is_foreign=True), False),
        (run("run-2", is_dead=False), False),
    ],
)
def test_drivers_of_others_are_told_from_those_of_a_run(other: RayJob, has_others: bool) -> None:
    ray = FakeRay([run("run-1", is_dead=False), driver(1, is_dead=False), other], {})
    assert Drivers("run-1", print, cluster=ray).connected() == Connected(("ppo",), has_others)


def test_the_wait_for_rays_own_removal_of_leftovers_has_a_deadline() -> None:
    ray = FakeRay([driver(1, is_dead=True)], {b"\1": Left(is_leaving=True)})
    now = [0.0]
    notes: list[str] = []
    through: list[str] = []
    drivers = Drivers("run-1", notes.append, cluster=ray, clock=lambda: now[0])
    drivers.wait_for_end("ppo", 1, lambda: through.append("ppo"))
    drivers.look()
    assert (through, notes) == ([], [])
    now[0] = PATIENCE + 1
    drivers.look()
    assert (through, notes) == (
        ["ppo"],
        ["ppo: after 60 s, Ray has not ended all that the task started"],
    )


def test_leftovers_of_killed_runs_are_removed_and_active_runs_keep_all() -> None:
    dead = RayJob(b"\1", True, Driver("killed", "ppo", 1), "")
    of_another = RayJob(b"\2", True, Driver("alive", "ppo", 1), "")
    ray = FakeRay([dead, of_another, run("killed", is_dead=True), run("alive", is_dead=False)])
    ray.there = {b"\1": Left((b"a",)), b"\2": Left((b"b",))}
    notes = list[str]()
    remove_what_dead_runs_left(notes.append, cluster=ray)
    assert (notes, ray.there) == (
        ["earlier runs left 1 detached actor: removed"],
        {b"\2": Left((b"b",))},
    )


def test_resources_held_by_drivers_count_to_their_run_on_each_node() -> None:
    ray = FakeRay([driver(1, is_dead=False), driver(2, is_dead=True), run("run-1", is_dead=False)])
    found = held(ray, {"id-1": "head", "id-2": "gpu-0"})
    assert found == {"run-1": {"head": {"CPU": 1.5}, "gpu-0": {"GPU": 1.0}}}
