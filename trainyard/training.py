"""train.* between the command line and dispatch: finds the files, the run, and the cluster that a run is on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from trainyard import lifecycle, paths, smoke
from trainyard.backends.contract import Tools
from trainyard.dispatch import launch, looking
from trainyard.dispatch.plan import Request
from trainyard.dispatch.prepare import Prepared, prepare
from trainyard.dispatch.screens import ReportScreen, Screen
from trainyard.dispatch.standing import Standing
from trainyard.endpoint import Endpoint
from trainyard.errors import Problem, RequestError, TrainyardError
from trainyard.lifecycle import Cluster
from trainyard.results import compare as comparing
from trainyard.results import state as states
from trainyard.results import store
from trainyard.results.compare import Comparison
from trainyard.results.report import write_report
from trainyard.results.run_filter import run_filter
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory
from trainyard.spec import load_cluster, load_job
from trainyard.spec.overrides import FLAG
from trainyard.steps import Progress
from trainyard.suggest import did_you_mean

# Before an override of `train.dispatch` that is for the cluster file; any other is for the job file.
CLUSTER_PREFIX = "cluster."
Loaded = TypeVar("Loaded")


@dataclass(frozen=True)
class Ready:
    """A job that may be sent, and the cluster to connect to."""

    prepared: Prepared
    cluster: Cluster


def ready(job_dir: str, files: Sequence[str], *, overrides: Sequence[str], backend: str | None) -> Ready:
    """Load the cluster file and the job file, and check one against the other.

    An override that begins with `cluster.` is for the cluster file, any other for the job file. Raises RequestError
    with every problem of both at once.
    """
    if len(files) > 1:
        raise RequestError(
            "a run on several clusters at once is not built yet",
            problems=tuple(Problem("-f", file) for file in files),
            hint="Give -f once, or dispatch the job once per cluster.",
        )
    here = Path.cwd()
    for_cluster = [one.removeprefix(CLUSTER_PREFIX) for one in overrides if one.startswith(CLUSTER_PREFIX)]
    for_job = [one for one in overrides if not one.startswith(CLUSTER_PREFIX)]
    wrong: list[RequestError] = []
    file = files[0] if files else None
    cluster = _tried(
        lambda: lifecycle.find(file, os.environ, directory=here, overrides=for_cluster, backend=backend), wrong
    )
    wrong = [_as_typed(error) for error in wrong]
    directory = _tried(lambda: paths.job_directory(job_dir, directory=here), wrong)
    job = _tried(lambda: load_job(directory, overrides=for_job), wrong) if directory else None
    if cluster and directory and job:
        return Ready(prepare(cluster.loaded, job, directory), cluster)
    if len(wrong) == 1:
        raise wrong[0]
    raise RequestError(
        "the cluster file and the job file are both wrong",
        problems=tuple(problem for error in wrong for problem in error.problems),
    )


def dispatch(
    ready: Ready, *, command: Sequence[str], wait: bool, skip_smoke: bool, progress: Progress, screen: Screen
) -> Standing:
    """Connect, send, follow, bring home."""
    endpoint = lifecycle.connect(ready.cluster)
    for difference in lifecycle.differences(ready.cluster, endpoint):
        screen.note(f"not as the file says: {difference}; `invoke cluster.up` changes that")
    if not skip_smoke:
        smoke.refuse_broken(endpoint)
    request = Request(results(), command=command, directory=Path.cwd(), wait=wait, skip_smoke=skip_smoke)
    return launch.dispatch(ready.prepared, endpoint, request, progress=progress, screen=screen)


def standings(file: str | None = None, *, job: str = "", state: str = "", since: str = "") -> list[Standing]:
    """Return how every run of this machine stands, the newest first; a cluster that is away is asked once.

    With `file`, only the runs of the cluster that `-f` means; the flags of `train.list` choose further. Raises
    RequestError.
    """
    only = run_filter(job=job, state=state, since=since, now=time.time())
    away: dict[str, str] = {}
    found: list[Standing] = []
    for run in store.runs(results(), cluster=_cluster_name(file)):
        record = store.described(run)
        if not record or only.takes(record):
            found.append(_standing(run, str(record.get("cluster", "?")), away))
    return [standing for standing in found if only.state in (None, standing.state.state)]


def _standing(run: RunDirectory, cluster: str, away: dict[str, str]) -> Standing:
    """Return how a run stands; `away` are the clusters that did not answer, each with why."""
    try:
        state = states.load(run)
    except TrainyardError as error:
        state = RunState(run=run.name, cluster=cluster, job=None)
        return Standing(run, state, unsure=f"run {run.name} is damaged: {error.what}", broken=True)
    if state.ended or cluster in away:
        return Standing(run, state, unsure=None if state.ended else away[cluster])
    found = looking.standing(run, connect)
    if found.unsure:
        away[cluster] = found.unsure
    return replace(found, unsure=None) if found.state.ended else found


def status(run: RunDirectory) -> Standing:
    return looking.standing(run, connect)


def ended(run: RunDirectory) -> Standing | None:
    """Return how a run ended that had ended by what is known here, None of any other."""
    state = states.load(run)
    return Standing(run, state) if state.ended else None


def logs(run: RunDirectory, *, screen: Screen, task: str | None, everything: bool, follow: bool) -> Standing:
    """Show a run's logs; `task` must be one of its tasks."""
    tasks = run.record().get("tasks", ())
    if task is not None and task not in tasks:
        raise RequestError(
            f"run {run.name} has no task {task!r}",
            problems=(Problem("--task", f"there are: {', '.join(tasks[:10])}{did_you_mean(task, tasks)}"),),
        )
    if follow:
        return looking.logs(run, connect, screen=screen, everything=everything)
    return looking.logs_so_far(run, connect, screen=screen)


def watch(run: RunDirectory, *, screen: ReportScreen) -> Standing:
    with closing(screen):
        return looking.watch(run, connect, screen=screen)


def compare(asked: Sequence[str], *, tags: Sequence[str]) -> Comparison:
    """Compare runs by name. Raises RequestError unless there are two of them at least."""
    runs = [find_run(name) for name in asked]
    if len({run.name for run in runs}) < max(2, len(runs)):
        what = "a run cannot be compared with itself" if len(runs) > 1 else "there is nothing to compare with"
        raise RequestError(what, hint="Name two runs or more; see: invoke train.list")
    return comparing.compare(runs, results(), tags=tags)


def stop(run: RunDirectory, *, screen: Screen) -> Standing:
    return looking.stop(run, connect, screen=screen)


def fetch(run: RunDirectory, *, checkpoints: bool, screen: Screen) -> Standing:
    return looking.fetch(run, connect, screen=screen, checkpoints=checkpoints)


def report(run: RunDirectory, *, screen: Screen) -> Path:
    """Write a run's report anew; of one that goes on, with what it has left by now."""
    looking.fetch_so_far(run, connect, screen=screen)
    return write_report(run.path)


def find_run(asked: str | None, file: str | None = None) -> RunDirectory:
    """Return the run that was asked for, or the newest one; with `file`, of the cluster that `-f` means."""
    return store.find(results(), asked, cluster=_cluster_name(file))


def run_to_stop(asked: str | None, file: str | None) -> RunDirectory:
    """Return the run that was asked for, else the only one that goes on, else the newest.

    Raises RequestError if several go on.
    """
    return find_run(asked or the_open_run(standings(file)), file)


def the_open_run(found: Sequence[Standing]) -> str | None:
    """Return the only run that goes on, None if there is none. Raises RequestError if there are several."""
    open_runs = [one for one in found if not one.state.ended and not one.broken]
    # Whether one goes on whose cluster does not answer, nobody knows.
    names = [one.run.name for one in open_runs if not one.unsure] or [one.run.name for one in open_runs]
    if len(names) > 1:
        raise RequestError(
            f"{len(names)} runs go on",
            problems=(Problem("RUN", f"one of: {', '.join(names)}"),),
            hint=f"Name the one to end: invoke train.stop {names[0]}",
        )
    return names[0] if names else None


def connect(run: RunDirectory) -> Endpoint:
    """Return the way into the cluster that a run is on, by the cluster file that was recorded with it."""
    loaded = load_cluster(run.cluster_file)
    # A token file is named relative to where the cluster file was.
    source = Path(str(run.record().get("cluster_file") or run.cluster_file))
    state = paths.cluster_state(loaded.spec.name, os.environ)
    tools = Tools(state, os.environ, loaded.spec.backend, source=source)
    return lifecycle.connect(Cluster(loaded, tools))


def results() -> Path:
    return paths.results_home(os.environ, directory=Path.cwd())


def _cluster_name(file: str | None) -> str | None:
    return None if file is None else lifecycle.find(file, os.environ, directory=Path.cwd()).spec.name


def _as_typed(error: RequestError) -> RequestError:
    """Return an error about the cluster file with every `--set` as it was typed, with `cluster.` in front."""
    problems = tuple(
        replace(problem, where=f"{FLAG} {CLUSTER_PREFIX}{problem.where.removeprefix(f'{FLAG} ')}")
        if problem.where.startswith(f"{FLAG} ")
        else problem
        for problem in error.problems
    )
    return RequestError(error.what, problems=problems, where=error.where, hint=error.hint)


def _tried(load: Callable[[], Loaded], wrong: list[RequestError]) -> Loaded | None:
    try:
        return load()
    except RequestError as error:
        wrong.append(error)
        return None
