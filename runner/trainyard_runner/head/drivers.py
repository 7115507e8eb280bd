"""Drivers of Ray's that tasks' commands are: when Ray calls them ended, and what they left on the
cluster.

A command that connected to Ray ends with its guard, and Ray then ends its actors and tasks on all
nodes, a moment later. Detached actors and placement groups stay by Ray's design: they are removed
here.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import ray
from ray._private import state
from ray._private.gcs_utils import create_gcs_channel
from ray.core.generated import gcs_pb2

from trainyard_runner.wire.driver import Driver, is_run, left_in_words

# Ray was measured to call a killed driver ended after 0.1 s; a node that died with it takes 10 to
# 46 s.
PATIENCE = 60.0
_EVERY = 0.1
_ANSWER = 10.0
_INTERNAL = "_ray_internal"
_DEAD = gcs_pb2.ActorTableData.DEAD
_REMOVED = gcs_pb2.PlacementGroupTableData.REMOVED


@dataclass(frozen=True)
class RayJob:
    """A job in Ray's own table: the driver of an attempt, or the job `submission` that a run is.

    `is_foreign`: neither, but a program that somebody submitted or connected without Trainyard.
    """

    job_id: bytes
    is_dead: bool
    driver: Driver | None
    submission: str
    is_foreign: bool = False


@dataclass(frozen=True)
class Connected:
    """The drivers that can wait for room: the tasks of this run that have one, and whether others
    do.
    """

    tasks: tuple[str, ...] = ()
    has_others: bool = False


@dataclass(frozen=True)
class Left:
    """What is there although its drivers have ended: detached actors and placement groups, by id.

    `is_leaving`: there is more, which Ray itself is removing.
    """

    actors: tuple[bytes, ...] = ()
    groups: tuple[bytes, ...] = ()
    is_leaving: bool = False

    def __bool__(self) -> bool:
        return bool(self.actors or self.groups)

    def __str__(self) -> str:
        return left_in_words(len(self.actors), len(self.groups))


class Ray(Protocol):
    """What is asked of Ray, and told to it."""

    def jobs(self) -> list[RayJob]: ...

    def left(self, job_ids: Iterable[bytes]) -> Left: ...

    def remove(self, left: Left) -> None: ...

    def held(self, job_id: bytes) -> list[tuple[str, Mapping[str, float]]]: ...


class TheRay:
    """The cluster that this process is connected to."""

    def jobs(self) -> list[RayJob]:
        """Return Ray's own table of jobs, ended ones too."""
        client = ray._private.worker.global_worker.gcs_client
        try:
            found = client.get_all_job_info(
                skip_submission_job_info_field=True, skip_is_running_tasks_field=True
            )
        except TypeError:
            # Older ones (2.36) have no such choice, and ask every driver.
            found = client.get_all_job_info()
        return [_ray_job(entry) for entry in found.values()]

    def left(self, job_ids: Iterable[bytes]) -> Left:
        """Return what Ray has of these drivers' detached actors and placement groups."""
        ids = list(job_ids)
        if not ids:
            return Left()

        accessor = _tables()
        found = [
            entry for job_id in ids for entry in accessor.get_actor_table(ray.JobID(job_id), None)
        ]
        actors = [
            actor for actor in map(gcs_pb2.ActorTableData.FromString, found) if actor.state != _DEAD
        ]
        all_groups = map(
            gcs_pb2.PlacementGroupTableData.FromString, accessor.get_placement_group_table()
        )
        groups = [
            group for group in all_groups if group.creator_job_id in ids and group.state != _REMOVED
        ]

        return Left(
            tuple(actor.actor_id for actor in actors if actor.is_detached),
            tuple(group.placement_group_id for group in groups if group.is_detached),
            is_leaving=not all(each.is_detached for each in (*actors, *groups)),
        )

    def held(self, job_id: bytes) -> list[tuple[str, Mapping[str, float]]]:
        """Return what a driver's actors and placement groups hold: ids of nodes, each with
        amounts.
        """
        accessor = _tables()
        actors = map(
            gcs_pb2.ActorTableData.FromString, accessor.get_actor_table(ray.JobID(job_id), "ALIVE")
        )
        groups = map(
            gcs_pb2.PlacementGroupTableData.FromString, accessor.get_placement_group_table()
        )
        bundles = [
            bundle for group in groups if group.creator_job_id == job_id for bundle in group.bundles
        ]
        # An actor in a placement group holds what that group holds already.
        alone = []

        for actor in actors:
            if not any("_group_" in name for name in actor.required_resources):
                alone.append(actor)

        return [
            *((actor.address.node_id.hex(), dict(actor.required_resources)) for actor in alone),
            *(
                (bundle.node_id.hex(), dict(bundle.unit_resources))
                for bundle in bundles
                if bundle.node_id
            ),
        ]

    def remove(self, left: Left) -> None:
        """Ask Ray to end what drivers left; returns before it has."""
        worker = ray._private.worker.global_worker
        if left.actors:
            from ray.core.generated import (
                gcs_service_pb2,
                gcs_service_pb2_grpc,
            )  # 0.1 s, and seldom needed

            # `ray.kill` wants a handle, which an actor without a name gives to nobody.
            actors = gcs_service_pb2_grpc.ActorInfoGcsServiceStub(
                create_gcs_channel(worker.gcs_client.address)
            )

            for actor in left.actors:
                request = gcs_service_pb2.KillActorViaGcsRequest(
                    actor_id=actor, force_kill=True, no_restart=True
                )
                actors.KillActorViaGcs(request, timeout=_ANSWER)

        for group in left.groups:
            worker.core_worker.remove_placement_group(ray.PlacementGroupID(group))


def _tables() -> Any:
    """Return Ray's reader of its own tables, under the name that this version of Ray has for it."""
    if connect := getattr(state.state, "_connect_and_get_accessor", None):
        return connect()
    # Ray 2.44 and older.
    state.state._check_connected()
    return state.state.global_state_accessor


def _ray_job(entry: Any) -> RayJob:
    metadata = dict(entry.config.metadata)
    submission = metadata.get("job_submission_id", "")
    driver = None if submission else Driver.of(metadata)
    # Ray's own drivers, its dashboard's among them, have namespaces of their own.
    is_rays = entry.config.ray_namespace.startswith(_INTERNAL)
    is_foreign = driver is None and not is_run(metadata) and not is_rays
    return RayJob(entry.job_id, entry.is_dead, driver, submission, is_foreign)


@dataclass
class _Attempt:
    driver: Driver
    since: float
    go_on: Callable[[], None]
    is_noted: bool = False


class Drivers:
    """The attempts of a run whose commands have ended, until nothing of theirs is left on the
    cluster.
    """

    def __init__(
        self,
        run: str,
        note: Callable[[str], None],
        *,
        cluster: Ray | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._note = note
        self._ray = cluster or TheRay()
        self._clock = clock
        self._ending: list[_Attempt] = []
        self._due = 0.0

    def __bool__(self) -> bool:
        return bool(self._ending)

    def ended(self, task: str, attempt: int, go_on: Callable[[], None]) -> None:
        """Call `go_on` once Ray calls what this attempt connected to it ended, and what it left is
        removed.
        """
        self._ending.append(_Attempt(Driver(self._run, task, attempt), self._clock(), go_on))
        self._due = 0.0

    def connected(self) -> Connected:
        """Return what is connected to Ray now."""
        jobs = [job for job in self._ray.jobs() if not job.is_dead]
        drivers = [job.driver for job in jobs if job.driver is not None]
        own = {driver.task for driver in drivers if driver.run == self._run}
        others = any(job.is_foreign for job in jobs) or any(
            driver.run != self._run for driver in drivers
        )
        return Connected(tuple(sorted(own)), others)

    def look(self) -> None:
        """Go on with those that are through, with one question to Ray for all of them."""
        if not self._ending or self._clock() < self._due:
            return

        self._due = self._clock() + _EVERY
        jobs = []
        for job in self._ray.jobs():
            if job.driver is not None and job.driver.run == self._run:
                jobs.append(job)

        for attempt in list(self._ending):
            own = [job for job in jobs if job.driver == attempt.driver]
            is_late = self._clock() - attempt.since > PATIENCE
            if is_late:
                self._note(
                    f"{attempt.driver.task}: Ray has not ended after {PATIENCE:.0f} s what it "
                    "started"
                )

            if is_late or self._is_through(attempt, own):
                self._ending.remove(attempt)
                attempt.go_on()

    def give_up(self) -> None:
        """Go on with all of them, whatever is left: there is no time."""
        for attempt in self._ending:
            attempt.go_on()
        self._ending = []

    def _is_through(self, attempt: _Attempt, own: Sequence[RayJob]) -> bool:
        if any(not job.is_dead for job in own):
            return False
        left = self._ray.left(job.job_id for job in own)
        if left:
            if not attempt.is_noted:
                self._note(
                    f"{attempt.driver.task}: attempt {attempt.driver.attempt} left {left}: removed"
                )
            attempt.is_noted = True
            self._ray.remove(left)
        return not left and not left.is_leaving


def held(cluster: Ray, nodes: Mapping[str, str]) -> dict[str, dict[str, Counter[str]]]:
    """Return what tasks' drivers hold by what they started: by run and node, whose name `nodes` has
    by its id.
    """
    found: dict[str, dict[str, Counter[str]]] = {}
    for job in cluster.jobs():
        if job.driver is None or job.is_dead:
            continue
        of_run = found.setdefault(job.driver.run, {})
        for node_id, amounts in cluster.held(job.job_id):
            of_run.setdefault(nodes.get(node_id, node_id), Counter()).update(amounts)
    return found


def remove_what_dead_runs_left(note: Callable[[str], None], *, cluster: Ray | None = None) -> None:
    """Remove what is left of drivers whose run's own job ended before it could."""
    found = cluster or TheRay()
    jobs = found.jobs()
    going = {job.submission for job in jobs if job.submission and not job.is_dead}
    dead = []
    for job in jobs:
        if job.is_dead and job.driver is not None and job.driver.run not in going:
            dead.append(job)
    left = found.left(job.job_id for job in dead)
    if left:
        note(f"earlier runs left {left}: removed")
        found.remove(left)
