"""Runs that a change of their cluster would end: named, ended only if asked for, their outputs fetched first."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from trainyard import lifecycle
from trainyard.dispatch import runs
from trainyard.dispatch.follow import STOP_WITHIN
from trainyard.errors import LockedOutError, NotReadyError, OutsideError, Problem, RequestError, TrainyardError
from trainyard.lifecycle import Cluster
from trainyard.lock import WAIT_SECONDS
from trainyard.results import state
from trainyard.results.formats import duration
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import RayApi, RefusedError
from trainyard.seams.ray_types import Job
from trainyard.smoke import JOB as SMOKE
from trainyard.steps import YES, Answer, PlannedStep, Progress, Step, no
from trainyard.steps import run as run_steps
from trainyard.wording import counted, named


def check(
    cluster: Cluster,
    command: str,
    progress: Progress,
    *,
    results: Path,
    end_runs: bool,
    note: Callable[[str], None],
) -> None:
    """Raise RequestError while runs go on, or end them if that was asked for; then fetch what runs left.

    To be called before nodes end, by `command` as it is typed. A cluster that does not answer has nothing that could
    be named or fetched; one that runs, and answers others alone, is not ended unasked.
    """
    insisting = f"trainyard {command} --end-runs"
    try:
        endpoint = lifecycle.connect_as_made(cluster)
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
        # Ray calls a run's job running for a moment after the last that it told.
        going = [job for job in jobs if not job.ended and not _told_its_end(results, job.submission_id)]
        if going and not end_runs:
            go_on = f"{counted(len(going), 'run')} {'goes' if len(going) == 1 else 'go'} on"
            raise RequestError(
                f"{go_on} on cluster {cluster.spec.name}, and would end",
                problems=tuple(_described(job) for job in going),
                hint=f"To end what runs, with what it has left brought here first: {insisting}",
            )
        if submitted := [job.submission_id for job in going if job.submission_id]:
            run_steps([_end(ray, submitted)], progress)
        ours = [run for job in jobs if (run := _here(results, job.submission_id))]
        if left := [run for run in ours if not runs.is_at_home(ray, run)]:
            run_steps([_fetch(ray, left, note, "" if end_runs else insisting)], progress)
    here = {run.name for run in ours}
    dispatched = [job for job in jobs if "trainyard_run" in job.metadata and job.metadata.get("trainyard_job") != SMOKE]
    if others := [job.submission_id for job in dispatched if job.submission_id not in here]:
        note(f"dispatched elsewhere, what nobody fetched there ends with the head: {named(others)}")


def would_end(cluster: Cluster, plan: Sequence[PlannedStep]) -> list[Problem]:
    """Return the runs that a plan would end, as far as the cluster says which go on."""
    if not any(step.disruptive and step.state != "already" for step in plan):
        return []
    try:
        with runs.ray_of(lifecycle.connect_as_made(cluster)) as ray:
            return [_described(job) for job in ray.jobs() if not job.ended]
    except TrainyardError:
        return []


def _unknown(error: TrainyardError, note: Callable[[str], None], insisting: str) -> None:
    """Say that nobody knows which runs go on; an error where only we are refused, which names `insisting` on it."""
    what = f"whether runs go on is unknown: {error.what}"
    if insisting and isinstance(error, (LockedOutError, RefusedError)):
        hint = f"Who made the cluster can ask it. To end it all the same, and lose what its runs left: {insisting}"
        raise RequestError(what, where=error.where, hint=hint) from error
    note(what)


def _described(job: Job) -> Problem:
    """Return a job's name, and what its metadata and Ray tell about it."""
    age = f"for {duration(max(0.0, time.time() - job.start))}" if job.start else "just begun"
    if "trainyard_run" not in job.metadata:
        return Problem(job.submission_id or f"Ray job {job.driver}", f"not dispatched by Trainyard, {age}")
    by = job.metadata.get("trainyard_by", "?")
    return Problem(job.submission_id, f"job {job.metadata.get('trainyard_job', '?')}, by {by}, {age}")


def _end(ray: RayApi, names: Sequence[str]) -> Step:
    def ended() -> Answer:
        going = [job.submission_id for job in ray.jobs() if job.submission_id in names and not job.ended]
        return no(f"still going: {named(going)}") if going else YES

    def end() -> None:
        for name in names:
            ray.stop(name)

    return Step(f"End {counted(len(names), 'run')}: {named(names)}", done=ended, do=end, deadline=STOP_WITHIN)


def _fetch(ray: RayApi, left: Sequence[RunDirectory], note: Callable[[str], None], insisting: str) -> Step:
    """Return the step after which everything of these runs is here; what another command fetches is waited for.

    What cannot be fetched is an error that names the command `insisting` on it; without one, it is given up.
    """
    given_up: set[str] = set()

    def fetched() -> Answer:
        missing = [run.name for run in left if run.name not in given_up and not runs.is_at_home(ray, run)]
        return no(f"still on the cluster: outputs of {named(missing)}") if missing else YES

    def fetch() -> None:
        for run in left:
            for error in runs.bring_home(ray, run, note=note):
                if insisting:
                    hint = f"Repeat the command once the cause is gone. To give them up: {insisting}"
                    raise OutsideError(f"outputs would be lost: {error.what}", where=error.where, hint=hint)
                given_up.add(run.name)
                note(f"outputs of {run.name} are given up: {error.what}")

    return Step(f"Fetch outputs of {named([run.name for run in left])}", fetched, fetch, deadline=WAIT_SECONDS)


def _told_its_end(results: Path, name: str) -> bool:
    run = _here(results, name)
    return run is not None and state.load(run).ended


def _here(results: Path, name: str) -> RunDirectory | None:
    """Return the directory of a run that was dispatched from here, None of any other."""
    run = RunDirectory(results / name)
    return run if name and Path(name).name == name and (run.path / "run.json").is_file() else None
