"""Runs that a change of their cluster would end: named, ended only if asked for, their outputs
fetched first.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from trainyard.dispatch import checkpoints, runs
from trainyard.dispatch.follow import STOP_WITHIN
from trainyard.dispatch.smoke import JOB as SMOKE
from trainyard.errors import (
    LockedOutError,
    NotReadyError,
    OutsideError,
    Problem,
    RequestError,
    TrainyardError,
    reason_of,
)
from trainyard.lock import WAIT_SECONDS
from trainyard.operations.cluster import Cluster, connect_as_made
from trainyard.results import state
from trainyard.results.formats import duration
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import RayApi, RefusedError
from trainyard.seams.ray_types import Job, without_drivers_of_runs
from trainyard.steps import YES, Answer, PlannedStep, Progress, Step, no
from trainyard.steps import run as run_steps
from trainyard.wording import counted, named

# What a command ends at most: nodes with what runs on them; also the head with what it keeps; the
# whole cluster.
Ends = Literal["nodes", "head", "cluster"]


def check(
    cluster: Cluster,
    command: str,
    progress: Progress,
    *,
    results: Path,
    end_runs: bool,
    ends: Ends,
    note: Callable[[str], None],
) -> None:
    """Raise RequestError while runs go on, or end them if that was asked for; then fetch what runs
    left.

    To be called before nodes end, by `command` as it is typed. A cluster that does not answer has
    nothing that could be named or fetched; one that runs, and answers others alone, is not ended
    unasked. With `end_runs` nothing that a run's records are like, here or on the cluster, is an
    error: it is noted, and what cannot be fetched is given up. Checkpoints that do not come home
    are named where the head ends, and with them the storage that a cluster made.
    """
    insisting = f"trainyard {command} --end-runs"
    try:
        endpoint = connect_as_made(cluster)
    except NotReadyError:
        return
    except TrainyardError as error:
        _unknown(error, note, "" if end_runs else insisting)
        return

    with runs.ray_of(endpoint) as ray:
        try:
            jobs = ray.jobs()
        except TrainyardError as error:
            _unknown(error, note, "" if end_runs else insisting)
            return

        going = _active(jobs, results)
        if going and not end_runs:
            active = (
                f"{counted(len(going), 'run')} {'is' if len(going) == 1 else 'are'} still active"
            )
            raise RequestError(
                f"{active} on cluster {cluster.spec.name}",
                problems=tuple(_described(job) for job in going),
                hint=f"Stop {'it' if len(going) == 1 else 'them'} and fetch the results first: "
                f"{insisting}",
            )

        if submitted := [job.submission_id for job in going if job.submission_id]:
            _run_or_note(end_step(ray, submitted), progress, note, is_needed=False)

        ours = [run for job in jobs if (run := _here(results, job.submission_id))]
        bringing = _Bringing(ray, note=note, insisting="" if end_runs else insisting)
        if left := [run for run in ours if not bringing.is_done(run)]:
            _run_or_note(bringing.step(left), progress, note, is_needed=not end_runs)

    if ends != "nodes":
        _name_lost_checkpoints(ours, note, storage_stays=_storage_stays(cluster, ends))

    here = {run.name for run in ours}
    runs_of_jobs = [job for job in jobs if "trainyard_run" in job.metadata and job.submission_id]
    dispatched = [job for job in runs_of_jobs if job.metadata.get("trainyard_job") != SMOKE]
    if others := [job.submission_id for job in dispatched if job.submission_id not in here]:
        note(
            "dispatched elsewhere; results that were not fetched there are lost with the head: "
            f"{named(others)}"
        )


def would_end(cluster: Cluster, plan: Sequence[PlannedStep]) -> list[Problem]:
    """Return the runs that a plan would end, as far as the cluster says which go on."""
    if not any(step.disruptive and step.state != "already" for step in plan):
        return []
    try:
        with runs.ray_of(connect_as_made(cluster)) as ray:
            return [
                _described(job)
                for job in without_drivers_of_runs(job for job in ray.jobs() if not job.ended)
            ]
    except TrainyardError:
        return []


def _active(jobs: Sequence[Job], results: Path) -> list[Job]:
    """Return the jobs that are still active, each run once, whatever its tasks started through
    Ray.
    """
    # Ray calls a run's job running for a moment after the last that it told, and what its tasks
    # started too.
    going = [job for job in jobs if not job.ended]
    return without_drivers_of_runs(job for job in going if not told_its_end(results, _run_of(job)))


def _run_of(job: Job) -> str:
    if job.belongs_to:
        return job.belongs_to.run
    return job.submission_id


def _unknown(error: TrainyardError, note: Callable[[str], None], insisting: str) -> None:
    """Say that nobody knows which runs go on; an error where only we are refused, which names
    `insisting` on it.
    """
    what = f"whether runs are active is unknown: {error.what}"
    if insisting and isinstance(error, (LockedOutError, RefusedError)):
        way_in = error.hint or "Who made the cluster can ask it."
        hint = f"{way_in} To end it all the same, and lose what its runs left: {insisting}"
        raise RequestError(what, where=error.where, hint=hint) from error
    note(what)


def _described(job: Job) -> Problem:
    """Return a job's name, and what its metadata and Ray tell about it."""
    if job.start:
        age = f"for {duration(max(0.0, time.time() - job.start))}"
    else:
        age = "just begun"

    if (owner := job.belongs_to) is not None:
        return Problem(owner.run, f"its task {owner.task} is still connected to Ray, {age}")
    if "trainyard_run" not in job.metadata:
        return Problem(
            job.submission_id or f"Ray job {job.driver}", f"not dispatched by Trainyard, {age}"
        )

    by = job.metadata.get("trainyard_by", "?")
    return Problem(
        job.submission_id, f"job {job.metadata.get('trainyard_job', '?')}, by {by}, {age}"
    )


def end_step(ray: RayApi, names: Sequence[str]) -> Step:
    """Return the step after which Ray calls these runs ended."""

    def ended() -> Answer:
        going = [
            job.submission_id for job in ray.jobs() if job.submission_id in names and not job.ended
        ]
        if going:
            return no(f"still going: {named(going)}")
        return YES

    def end() -> None:
        for name in names:
            ray.stop(name)

    title = f"End {counted(len(names), 'run')}: {named(names)}"
    return Step("end-runs", title, done=ended, do=end, deadline=STOP_WITHIN)


def _run_or_note(
    step: Step, progress: Progress, note: Callable[[str], None], *, is_needed: bool
) -> None:
    """Make a step hold; one that is not needed may fail, and is noted then: the nodes end all the
    same.
    """
    try:
        run_steps([step], progress)
    except TrainyardError as error:
        if is_needed:
            raise
        note(f"given up: {error.what}")


class _Bringing:
    """Everything that runs left, brought here; what another command fetches is waited for.

    What cannot be fetched is an error that names the command `insisting` on it; without one, it is
    given up.
    """

    def __init__(self, ray: RayApi, *, note: Callable[[str], None], insisting: str) -> None:
        self._ray = ray
        self._note = note
        self._insisting = insisting
        self._tried: set[str] = set()
        self._given_up: set[str] = set()
        # By run: why what it left is unknown.
        self._unreadable: dict[str, Exception] = {}

    def is_done(self, run: RunDirectory) -> bool:
        if run.name in self._given_up:
            return True
        try:
            is_at_home = runs.is_at_home(self._ray, run)
        except Exception as error:  # as in told_its_end
            self._unreadable[run.name] = error
            return False
        # A report that cannot be written is noted once.
        return is_at_home and (run.report.exists() or run.name in self._tried)

    def step(self, left: Sequence[RunDirectory]) -> Step:
        def fetched() -> Answer:
            missing = [run.name for run in left if not self.is_done(run)]
            if missing:
                return no(f"still on the cluster: outputs of {named(missing)}")
            return YES

        def fetch() -> None:
            for run in left:
                self._bring(run)

        title = f"Fetch outputs of {named([run.name for run in left])}"
        return Step("fetch-outputs", title, fetched, fetch, deadline=WAIT_SECONDS)

    def _bring(self, run: RunDirectory) -> None:
        """Fetch what a run left, as far as it is known."""
        self._tried.add(run.name)
        problems: list[tuple[str, Exception]] = []
        try:
            unfetched = runs.bring_home(self._ray, run, note=self._note)
            for error in unfetched.outputs:
                problems.append(("outputs", error))
            for error in unfetched.checkpoints:
                problems.append(("checkpoints", error))
        except Exception as error:  # as above
            problems.append(("outputs", error))

        if (unreadable := self._unreadable.pop(run.name, None)) is not None:
            problems = [("outputs", unreadable)]

        for kind, problem in problems:
            self._give_up(run, kind, problem)

    def _give_up(self, run: RunDirectory, kind: str, problem: Exception) -> None:
        reason = reason_of(problem)
        if self._insisting:
            if isinstance(problem, TrainyardError):
                where = problem.where
            else:
                where = str(run.path)
            hint = f"Repeat the command once the cause is gone. To give them up: {self._insisting}"
            raise OutsideError(
                f"{kind} of {run.name} would be lost: {reason}", where=where, hint=hint
            ) from problem
        self._given_up.add(run.name)
        self._note(f"{kind} of {run.name} are given up: {reason}")


def _storage_stays(cluster: Cluster, ends: Ends) -> bool:
    """Say whether storage of a cluster, if it has some, outlives what ends: its own goes with
    it.
    """
    return ends == "head" or cluster.backend.traits.storage_stays(cluster.spec)


def _name_lost_checkpoints(
    here: Sequence[RunDirectory], note: Callable[[str], None], *, storage_stays: bool
) -> None:
    """Name the checkpoints that end with the head, and record with each run that they do."""
    for run in here:
        try:
            now = state.load(run)
            left = checkpoints.elsewhere(run, now)
        except Exception:  # noqa: S112 - as in told_its_end; what it left was given up before
            continue

        if not left:
            continue

        what = f"{counted(len(left), 'checkpoint')} of run {run.name}: {checkpoints.listed(left)}"
        if storage_stays and now.checkpoints_at is not None:
            note(f"stays on the storage, in {now.checkpoints_at}: {what}")
        else:
            note(f"lost with the head: {what}")
            checkpoints.write_loss(run, left, now=datetime.datetime.now().astimezone())


def told_its_end(results: Path, name: str) -> bool:
    """Say whether the records of a run, if it was dispatched from here, have its end."""
    run = _here(results, name)
    try:
        return run is not None and state.load(run).ended
    except Exception:  # records are what a task, a full disk or another program made of them
        return False


def _here(results: Path, name: str) -> RunDirectory | None:
    """Return the directory of a run that was dispatched from here, None of any other."""
    run = RunDirectory(results / name)
    if name and Path(name).name == name and (run.path / "run.json").is_file():
        return run
    return None
