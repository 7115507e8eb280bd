"""Runs that a change of their cluster would end: named, ended only if asked for, their outputs fetched first."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard import lifecycle
from trainyard.backends.ray_nodes import ANSWER_SECONDS
from trainyard.dispatch import runs
from trainyard.dispatch.follow import STOP_WITHIN
from trainyard.endpoint import Endpoint
from trainyard.errors import OutsideError, Problem, RequestError, TrainyardError
from trainyard.lifecycle import Cluster
from trainyard.lock import WAIT_SECONDS
from trainyard.results.formats import duration
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import RayApi
from trainyard.seams.ray_types import Job
from trainyard.smoke import JOB as SMOKE
from trainyard.steps import YES, Answer, PlannedStep, Progress, Step, no
from trainyard.steps import run as run_steps
from trainyard.wording import counted, named


@dataclass(frozen=True)
class Change:
    """A command that may end nodes: as it is typed, and whether runs may end with it."""

    cluster: Cluster
    command: str
    results: Path
    end_runs: bool = False

    @property
    def with_end_runs(self) -> str:
        return f"invoke {self.command} --end-runs"


def check(change: Change, progress: Progress, *, note: Callable[[str], None]) -> None:
    """Raise RequestError while runs go on, or end them if that was asked for; then fetch what runs left.

    To be called before nodes end. A cluster that does not answer has nothing that could be named or fetched.
    """
    try:
        endpoint = lifecycle.connect_as_made(change.cluster)
    except TrainyardError:
        return
    with _connected(endpoint) as ray:
        try:
            jobs = ray.jobs()
        except TrainyardError as error:
            note(f"whether runs go on is unknown: {error.what}")
            return
        going = [job for job in jobs if not job.ended]
        if going and not change.end_runs:
            raise _refusal(change, going)
        submitted = [job.submission_id for job in going if job.submission_id]
        if submitted:
            run_steps([_end(ray, submitted)], progress)
        _bring_home(ray, jobs, change, progress, note)


def would_end(cluster: Cluster, plan: Sequence[PlannedStep]) -> list[Problem]:
    """Return the runs that a plan would end, as far as the cluster says which go on."""
    if not any(step.disruptive and step.state != "already" for step in plan):
        return []
    try:
        with _connected(lifecycle.connect_as_made(cluster)) as ray:
            return [_described(job) for job in ray.jobs() if not job.ended]
    except TrainyardError:
        return []


def _connected(endpoint: Endpoint) -> RayApi:
    return RayApi(endpoint.address, endpoint.token, answer_seconds=ANSWER_SECONDS, refused=endpoint.refused)


def _refusal(change: Change, going: Sequence[Job]) -> RequestError:
    verb = "goes on" if len(going) == 1 else "go on"
    return RequestError(
        f"{counted(len(going), 'run')} {verb} on cluster {change.cluster.spec.name}, and would end",
        problems=tuple(_described(job) for job in going),
        hint=f"To end what runs, with what it has left brought here first: {change.with_end_runs}",
    )


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


def _bring_home(
    ray: RayApi, jobs: Sequence[Job], change: Change, progress: Progress, note: Callable[[str], None]
) -> None:
    """Fetch what runs left that were dispatched here; name those whose outputs only others can fetch."""
    ours = [run for job in jobs if (run := _here(change.results, job.submission_id))]
    left = [run for run in ours if not runs.is_at_home(ray, run)]
    if left:
        run_steps([_fetch(ray, left, change, note)], progress)
    here = {run.name for run in ours}
    dispatched = [job for job in jobs if "trainyard_run" in job.metadata and job.metadata.get("trainyard_job") != SMOKE]
    others = [job.submission_id for job in dispatched if job.submission_id not in here]
    if others:
        note(f"dispatched elsewhere, what nobody fetched there ends with the head: {named(others)}")


def _fetch(ray: RayApi, left: Sequence[RunDirectory], change: Change, note: Callable[[str], None]) -> Step:
    """Return the step after which everything of these runs is here; what another command fetches is waited for."""
    given_up: set[str] = set()

    def fetched() -> Answer:
        missing = [run.name for run in left if run.name not in given_up and not runs.is_at_home(ray, run)]
        return no(f"still on the cluster: outputs of {named(missing)}") if missing else YES

    def fetch() -> None:
        for run in left:
            for error in runs.bring_home(ray, run, note=note):
                if not change.end_runs:
                    hint = f"Repeat the command once the cause is gone. To give them up: {change.with_end_runs}"
                    raise OutsideError(f"outputs would be lost: {error.what}", where=error.where, hint=hint)
                given_up.add(run.name)
                note(f"outputs of {run.name} are given up: {error.what}")

    return Step(f"Fetch outputs of {named([run.name for run in left])}", fetched, fetch, deadline=WAIT_SECONDS)


def _here(results: Path, name: str) -> RunDirectory | None:
    """Return the directory of a run that was dispatched from here, None of any other."""
    run = RunDirectory(results / name)
    return run if name and Path(name).name == name and (run.path / "run.json").is_file() else None
