"""Refuse to change a cluster with active runs, or end and fetch them."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Collection, Sequence
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
from trainyard.seams.ray_api import RayApi, RefusedError, ray_of
from trainyard.seams.ray_types import Job, without_drivers_of_runs
from trainyard.steps import YES, Answer, PlannedStep, Progress, Step, no
from trainyard.steps import run as run_steps
from trainyard.wording import counted, named

# How much a command ends, at most. "nodes": nodes with their tasks. "head": also the head with its
# outputs. "cluster": everything.
Ends = Literal["nodes", "head", "cluster"]


def settle(
    cluster: Cluster,
    command: str,
    progress: Progress,
    *,
    results: Path,
    end_runs: bool,
    ends: Ends,
    note: Callable[[str], None],
) -> None:
    """Refuse to end active runs, or end them (`end_runs`); then fetch results.

    Results are fetched for all runs, active or ended, that Ray lists and this
    machine dispatched. Call this before nodes end. `command` is the change as
    typed, for hints. Without `end_runs`, raises RequestError if runs are
    active, or if the cluster rejects this user. Nothing is done for a cluster
    that does not run. A cluster that does not answer is only noted: its runs
    are unknown.

    Without `end_runs`, results that cannot be fetched are an error. With
    `end_runs`, such results and damaged records are noted and given up. If the
    head ends, runs of other machines are noted, and checkpoints that were not
    fetched are noted as kept on storage, or recorded as lost.
    """
    insisting = f"trainyard {command} --end-runs"
    try:
        endpoint = connect_as_made(cluster)
    except NotReadyError:
        return
    except TrainyardError as error:
        _unknown(error, note, "" if end_runs else insisting)
        return

    with ray_of(endpoint) as ray:
        try:
            jobs = ray.jobs()
        except TrainyardError as error:
            _unknown(error, note, "" if end_runs else insisting)
            return

        active = _active(jobs, results)
        if active and not end_runs:
            raise _still_active(cluster, active, insisting)

        submitted = [job.submission_id for job in active if job.submission_id]
        if submitted:
            _run_or_note(end_step(ray, submitted), progress, note, is_needed=False)

        runs_here = [_here(results, job.submission_id) for job in jobs]
        from_here = [run for run in runs_here if run is not None]
        bringing = _Bringing(ray, note=note, insisting="" if end_runs else insisting)
        left = [run for run in from_here if not bringing.is_done(run)]
        if left:
            _run_or_note(bringing.step(left), progress, note, is_needed=not end_runs)

    if ends == "nodes":
        # The head stays, with the results of runs.
        return

    _name_lost_checkpoints(from_here, note, storage_stays=_storage_stays(cluster, ends))
    elsewhere = _dispatched_elsewhere(jobs, {run.name for run in from_here})
    if elsewhere:
        note(
            "lost with the head unless fetched before: results of runs of other machines: "
            f"{named(elsewhere)}"
        )


def _still_active(cluster: Cluster, active: Sequence[Job], insisting: str) -> RequestError:
    is_one = len(active) == 1
    verb = "is" if is_one else "are"
    pronoun = "it" if is_one else "them"
    return RequestError(
        f"{counted(len(active), 'run')} {verb} still active on cluster {cluster.spec.name}",
        problems=tuple(_described(job) for job in active),
        hint=f"Stop {pronoun} and fetch the results first: {insisting}",
    )


def _dispatched_elsewhere(jobs: Sequence[Job], from_here: Collection[str]) -> list[str]:
    """Name the runs of other machines, without smoke tests."""
    names = []
    for job in jobs:
        is_run = "trainyard_run" in job.metadata and job.submission_id
        is_smoke = job.metadata.get("trainyard_job") == SMOKE
        if is_run and not is_smoke and job.submission_id not in from_here:
            names.append(job.submission_id)
    return names


def would_end(cluster: Cluster, plan: Sequence[PlannedStep]) -> list[Problem]:
    """Return the active runs that a plan would end, if the cluster answers."""
    if not any(step.disruptive and step.state != "already" for step in plan):
        return []
    try:
        with ray_of(connect_as_made(cluster)) as ray:
            active = without_drivers_of_runs(job for job in ray.jobs() if not job.ended)
            return [_described(job) for job in active]
    except TrainyardError:
        return []


def _active(jobs: Sequence[Job], results: Path) -> list[Job]:
    """Return active jobs, without drivers that tasks of an active run started.

    A run whose end `results` has is not active, although Ray lists its job and
    its tasks' drivers as running for a moment longer.
    """
    active = []
    for job in jobs:
        run = job.belongs_to.run if job.belongs_to else job.submission_id
        if not job.ended and not is_recorded_as_ended(results, run):
            active.append(job)
    return without_drivers_of_runs(active)


def _unknown(error: TrainyardError, note: Callable[[str], None], insisting: str) -> None:
    """Note that it is unknown whether runs are active.

    `insisting` is the command that ends runs in any case; "" if the user typed
    that command already. Unless it is "", raises RequestError if the cluster
    rejects this user.
    """
    what = f"whether runs are active is unknown: {error.what}"
    if insisting and isinstance(error, (LockedOutError, RefusedError)):
        way_in = error.hint or "Only the cluster's owner can ask it."
        hint = f"{way_in} To continue, and lose the results of its runs: {insisting}"
        raise RequestError(what, where=error.where, hint=hint) from error
    note(what)


def _described(job: Job) -> Problem:
    """Name an active job, with its user and age."""
    if job.start:
        age = f"for {duration(max(0.0, time.time() - job.start))}"
    else:
        age = "just begun"

    if (owner := job.belongs_to) is not None:
        return Problem(owner.run, f"its task {owner.task} is still connected to Ray, {age}")
    if "trainyard_run" not in job.metadata:
        name = job.submission_id or f"Ray job {job.driver}"
        return Problem(name, f"not dispatched by Trainyard, {age}")

    user = job.metadata.get("trainyard_by", "?")
    name_of_job = job.metadata.get("trainyard_job", "?")
    return Problem(job.submission_id, f"job {name_of_job}, by {user}, {age}")


def end_step(ray: RayApi, names: Sequence[str]) -> Step:
    """Make the step that stops these runs."""

    def ended() -> Answer:
        active = [job.submission_id for job in ray.jobs() if not job.ended]
        remaining = [name for name in active if name in names]
        if remaining:
            return no(f"still running: {named(remaining)}")
        return YES

    def end() -> None:
        for name in names:
            ray.stop(name)

    title = f"End {counted(len(names), 'run')}: {named(names)}"
    return Step("end-runs", title, done=ended, do=end, deadline=STOP_WITHIN)


def _run_or_note(
    step: Step, progress: Progress, note: Callable[[str], None], *, is_needed: bool
) -> None:
    try:
        run_steps([step], progress)
    except TrainyardError as error:
        if is_needed:
            raise
        note(f"given up: {error.what}")


class _Bringing:
    """Fetches runs' results; waits if another command is fetching them.

    Results that cannot be fetched raise OutsideError. Its hint is `insisting`,
    the command that gives such results up. If `insisting` is "", they are given
    up with a note.
    """

    def __init__(self, ray: RayApi, *, note: Callable[[str], None], insisting: str) -> None:
        self._ray = ray
        self._note = note
        self._insisting = insisting
        self._tried: set[str] = set()
        self._given_up: set[str] = set()
        # The error from reading damaged records, by name of the run.
        self._unreadable: dict[str, Exception] = {}

    def is_done(self, run: RunDirectory) -> bool:
        if run.name in self._given_up:
            return True
        try:
            is_at_home = runs.is_at_home(self._ray, run)
        except Exception as error:  # a task, a full disk or a program may have damaged the records
            self._unreadable[run.name] = error
            return False
        # `_bring` notes a report that it cannot write, and does not try again.
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
        """Fetch a run's outputs and checkpoints; note or raise each failure."""
        self._tried.add(run.name)
        problems: list[tuple[str, Exception]] = []
        try:
            unfetched = runs.bring_home(self._ray, run, note=self._note)
            for error in unfetched.outputs:
                problems.append(("outputs", error))
            for error in unfetched.checkpoints:
                problems.append(("checkpoints", error))
        except Exception as error:  # a task, a full disk or a program may have damaged the records
            problems.append(("outputs", error))

        unreadable = self._unreadable.pop(run.name, None)
        if unreadable is not None:
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
            hint = f"Repeat the command once the cause is gone. To discard them: {self._insisting}"
            raise OutsideError(
                f"{kind} of {run.name} would be lost: {reason}", where=where, hint=hint
            ) from problem
        self._given_up.add(run.name)
        self._note(f"{kind} of {run.name} are given up: {reason}")


def _storage_stays(cluster: Cluster, ends: Ends) -> bool:
    """Say whether the storage for checkpoints, if any, outlives the change.

    Storage that the cluster itself made ends with the cluster.
    """
    return ends == "head" or cluster.backend.traits.storage_stays(cluster.spec)


def _name_lost_checkpoints(
    here: Sequence[RunDirectory], note: Callable[[str], None], *, storage_stays: bool
) -> None:
    """Note unfetched checkpoints; record those that are lost with the head."""
    for run in here:
        try:
            now = state.load(run)
            left = checkpoints.elsewhere(run, now)
        except Exception:  # noqa: S112 - damaged records, whose run `_Bringing` has given up
            continue

        if not left:
            continue
        what = f"{counted(len(left), 'checkpoint')} of run {run.name}: {checkpoints.listed(left)}"
        if storage_stays and now.checkpoints_at is not None:
            note(f"stays on the storage, in {now.checkpoints_at}: {what}")
        else:
            note(f"lost with the head: {what}")
            checkpoints.write_loss(run, left, now=datetime.datetime.now().astimezone())


def is_recorded_as_ended(results: Path, name: str) -> bool:
    """Say whether this machine has recorded the end of a run."""
    run = _here(results, name)
    try:
        return run is not None and state.load(run).ended
    except Exception:  # a task, a full disk or another program may have damaged the records
        return False


def _here(results: Path, name: str) -> RunDirectory | None:
    """Return a run's directory; None if another machine dispatched the run."""
    run = RunDirectory(results / name)
    if name and Path(name).name == name and (run.path / "run.json").is_file():
        return run
    return None
