"""Cleans up after tasks' commands that connected to Ray as drivers.

Once such a command has ended, Ray ends its actors and Ray tasks on all nodes.
Detached actors and placement groups outlive a driver by Ray's design: this
module removes them.
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

# Seconds. Measured: Ray reports a dead driver after 0.1 s, or 10 to 46 s if its node died, too.
PATIENCE = 60.0
_EVERY = 0.1
_ANSWER = 10.0
_INTERNAL = "_ray_internal"
_DEAD = gcs_pb2.ActorTableData.DEAD
_REMOVED = gcs_pb2.PlacementGroupTableData.REMOVED


@dataclass(frozen=True)
class RayJob:
    """An entry of Ray's table of jobs.

    `driver`: the attempt whose command is this driver, or None. `submission`:
    the id of a submitted job, else ""; a run's id is its name. `is_foreign`:
    neither Trainyard nor Ray itself started the program.
    """

    job_id: bytes
    is_dead: bool
    driver: Driver | None
    submission: str
    is_foreign: bool = False


@dataclass(frozen=True)
class Connected:
    """The drivers that are connected to Ray now.

    `tasks`: this run's tasks whose commands are drivers. `has_others`: other
    runs or programs have drivers, too.
    """

    tasks: tuple[str, ...] = ()
    has_others: bool = False


@dataclass(frozen=True)
class Left:
    """The ids of detached actors and placement groups that ended drivers left.

    `is_leaving`: Ray is still removing other actors or groups of these drivers.
    """

    actors: tuple[bytes, ...] = ()
    groups: tuple[bytes, ...] = ()
    is_leaving: bool = False

    def __bool__(self) -> bool:
        return bool(self.actors or self.groups)

    def __str__(self) -> str:
        return left_in_words(len(self.actors), len(self.groups))


class Ray(Protocol):
    """Access to Ray's tables: by TheRay, or by a fake in tests."""

    def jobs(self) -> list[RayJob]: ...

    def left(self, job_ids: Iterable[bytes]) -> Left: ...

    def remove(self, left: Left) -> None: ...

    def held(self, job_id: bytes) -> list[tuple[str, Mapping[str, float]]]: ...


class TheRay:
    """The tables of the cluster that this process is connected to."""

    def jobs(self) -> list[RayJob]:
        """Ask Ray for its table of jobs, dead ones included."""
        client = ray._private.worker.global_worker.gcs_client
        try:
            found = client.get_all_job_info(
                skip_submission_job_info_field=True, skip_is_running_tasks_field=True
            )
        except TypeError:
            # Ray 2.36 and older lack these options, and ask every driver, which takes longer.
            found = client.get_all_job_info()
        return [_ray_job(entry) for entry in found.values()]

    def left(self, job_ids: Iterable[bytes]) -> Left:
        """Ask Ray for the detached actors and groups that drivers left."""
        ids = list(job_ids)
        if not ids:
            return Left()

        accessor = _tables()
        actors = []
        groups = []
        is_leaving = False
        for job_id in ids:
            for actor in _actors(accessor, job_id):
                if actor.state != _DEAD and actor.is_detached:
                    actors.append(actor.actor_id)
                elif actor.state != _DEAD:
                    is_leaving = True

        for group in _groups(accessor):
            if group.creator_job_id not in ids or group.state == _REMOVED:
                continue
            if group.is_detached:
                groups.append(group.placement_group_id)
            else:
                is_leaving = True

        return Left(tuple(actors), tuple(groups), is_leaving=is_leaving)

    def held(self, job_id: bytes) -> list[tuple[str, Mapping[str, float]]]:
        """Ask Ray for (node id, amounts) of a driver's actors and bundles.

        The bundles are those of the driver's placement groups. The driver's Ray
        tasks are not counted.
        """
        accessor = _tables()
        held: list[tuple[str, Mapping[str, float]]] = []
        for actor in _actors(accessor, job_id, "ALIVE"):
            resources = dict(actor.required_resources)
            # An actor in a placement group uses the group's resources, which are counted below.
            if not any("_group_" in name for name in resources):
                held.append((actor.address.node_id.hex(), resources))

        for group in _groups(accessor):
            if group.creator_job_id == job_id:
                for bundle in group.bundles:
                    if bundle.node_id:
                        held.append((bundle.node_id.hex(), dict(bundle.unit_resources)))

        return held

    def remove(self, left: Left) -> None:
        """Ask Ray to remove actors and groups; do not wait for the removal."""
        worker = ray._private.worker.global_worker
        if left.actors:
            # Imported here because the import takes 0.1 s and is seldom needed.
            from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc

            # `ray.kill` needs a handle, and Ray gives no handle of an actor without a name.
            channel = create_gcs_channel(worker.gcs_client.address)
            actors = gcs_service_pb2_grpc.ActorInfoGcsServiceStub(channel)
            for actor in left.actors:
                request = gcs_service_pb2.KillActorViaGcsRequest(
                    actor_id=actor, force_kill=True, no_restart=True
                )
                actors.KillActorViaGcs(request, timeout=_ANSWER)

        for group in left.groups:
            worker.core_worker.remove_placement_group(ray.PlacementGroupID(group))


def _tables() -> Any:
    """Return Ray's GlobalStateAccessor, connected."""
    connect = getattr(state.state, "_connect_and_get_accessor", None)
    if connect is not None:
        return connect()
    # Ray 2.44 and older.
    state.state._check_connected()
    return state.state.global_state_accessor


def _actors(accessor: Any, job_id: bytes, actor_state: str | None = None) -> list[Any]:
    entries = accessor.get_actor_table(ray.JobID(job_id), actor_state)
    return [gcs_pb2.ActorTableData.FromString(entry) for entry in entries]


def _groups(accessor: Any) -> list[Any]:
    entries = accessor.get_placement_group_table()
    return [gcs_pb2.PlacementGroupTableData.FromString(entry) for entry in entries]


def _ray_job(entry: Any) -> RayJob:
    metadata = dict(entry.config.metadata)
    submission = metadata.get("job_submission_id", "")
    driver = None if submission else Driver.of(metadata)
    # Ray's own drivers, such as its dashboard, have namespaces that begin with _INTERNAL.
    is_rays = entry.config.ray_namespace.startswith(_INTERNAL)
    is_foreign = driver is None and not is_run(metadata) and not is_rays
    return RayJob(entry.job_id, entry.is_dead, driver, submission, is_foreign)


@dataclass
class _Attempt:
    driver: Driver
    since: float
    on_gone: Callable[[], None]
    is_noted: bool = False


class Drivers:
    """Ended attempts whose drivers may still hold actors or groups in Ray."""

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

    def wait_for_end(self, task: str, attempt: int, on_gone: Callable[[], None]) -> None:
        """Let `look` call `on_gone` once an attempt's drivers have ended.

        The drivers have ended when they are dead and have left nothing. After
        PATIENCE seconds, `look` calls `on_gone` in any case.
        """
        self._ending.append(_Attempt(Driver(self._run, task, attempt), self._clock(), on_gone))
        self._due = 0.0

    def connected(self) -> Connected:
        """Ask Ray for living drivers of this run's tasks and of others."""
        tasks = set()
        has_others = False
        for job in self._ray.jobs():
            if job.is_dead:
                continue
            if job.driver is not None and job.driver.run == self._run:
                tasks.add(job.driver.task)
            elif job.driver is not None or job.is_foreign:
                has_others = True
        return Connected(tuple(sorted(tasks)), has_others)

    def look(self) -> None:
        """Remove what ended attempts left; close attempts that left nothing.

        If Ray has not ended everything after PATIENCE seconds, the attempt is
        closed with a note. This asks Ray at most every _EVERY seconds, and at
        once after `wait_for_end`.
        """
        if not self._ending or self._clock() < self._due:
            return

        self._due = self._clock() + _EVERY
        jobs = []
        for job in self._ray.jobs():
            if job.driver is not None and job.driver.run == self._run:
                jobs.append(job)

        for attempt in list(self._ending):
            attempts_jobs = [job for job in jobs if job.driver == attempt.driver]
            is_late = self._clock() - attempt.since > PATIENCE
            if is_late:
                self._note(
                    f"{attempt.driver.task}: after {PATIENCE:.0f} s, Ray has not ended all that "
                    "the task started"
                )
            if is_late or self._is_gone(attempt, attempts_jobs):
                self._ending.remove(attempt)
                attempt.on_gone()

    def give_up(self) -> None:
        """Close all attempts now, even if Ray still has actors or groups."""
        for attempt in self._ending:
            attempt.on_gone()
        self._ending = []

    def _is_gone(self, attempt: _Attempt, jobs: Sequence[RayJob]) -> bool:
        if any(not job.is_dead for job in jobs):
            return False
        left = self._ray.left(job.job_id for job in jobs)
        if not left:
            return not left.is_leaving

        if not attempt.is_noted:
            attempt.is_noted = True
            driver = attempt.driver
            self._note(f"{driver.task}: attempt {driver.attempt} left {left}: removed")
        self._ray.remove(left)
        return False


def held(cluster: Ray, nodes: Mapping[str, str]) -> dict[str, dict[str, Counter[str]]]:
    """Ask Ray what tasks' actors and groups hold, by run and node name.

    `nodes`: names by node id. A node without a name appears under its id.
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
    """Remove actors and placement groups that drivers of dead runs left."""
    the_ray = cluster or TheRay()
    jobs = the_ray.jobs()
    going = {job.submission for job in jobs if job.submission and not job.is_dead}
    dead = []
    for job in jobs:
        if job.is_dead and job.driver is not None and job.driver.run not in going:
            dead.append(job)

    left = the_ray.left(job.job_id for job in dead)
    if left:
        note(f"earlier runs left {left}: removed")
        the_ray.remove(left)
