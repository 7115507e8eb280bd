"""The operations of train.*: find, list, compare, report and stop runs."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

from trainyard import steps
from trainyard.dispatch import runs
from trainyard.dispatch.follow import Screen
from trainyard.dispatch.runs import Connect, RunStatus
from trainyard.endpoint import Endpoint
from trainyard.errors import NotReadyError, Problem, RequestError, TrainyardError
from trainyard.operations import clusters, run_guard
from trainyard.paths import Here
from trainyard.results import compare as comparing
from trainyard.results import state as states
from trainyard.results import store
from trainyard.results.compare import Comparison
from trainyard.results.overview import OverviewRow, write_overview
from trainyard.results.report import write_report
from trainyard.results.state import RunState, State
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import ray_of
from trainyard.spec.units import parse_duration
from trainyard.steps import Progress
from trainyard.wording import did_you_mean

_STOPPED_ELSEWHERE = (
    f"{store.KNOWN_IN} Another user's run is stopped by its whole name, with the file of its "
    "cluster: trainyard train.stop RUN -f FILE"
)


def statuses(
    here: Here,
    file: str | None = None,
    *,
    job: str = "",
    state: str = "",
    since: str = "",
) -> list[RunStatus]:
    """Return the statuses of this machine's runs, the newest first.

    The clusters of active runs are asked; a cluster that does not answer is
    asked only once. `file` (`-f`) chooses the runs of one cluster; `job`,
    `state` and `since` are as typed for `train.list`. A damaged record matches
    every `job` and `since`. Raises RequestError for a wrong `state` or `since`.
    """
    _check_state(state)
    after = _start_of(since)
    away: dict[str, str] = {}
    connect_to = _connector(here)

    listed = []
    for run in store.runs(here.results, cluster=_cluster_name(here, file)):
        record = store.described(run)
        if record and not _is_meant(record, job=job, after=after):
            continue
        cluster = str(record.get("cluster", "?"))
        status = _run_status(run, cluster, away, connect=connect_to)
        if state in ("", status.state.state):
            listed.append(status)

    return listed


def _check_state(state: str) -> None:
    known = get_args(State)
    if state and state not in known:
        problem = Problem("--state", f"one of: {', '.join(known)}{did_you_mean(state, known)}")
        raise RequestError("there are no such runs", problems=(problem,))


def _start_of(since: str) -> float:
    """Return the Unix time when the duration `since` began; 0 without one."""
    if not since:
        return 0.0
    try:
        return time.time() - parse_duration(since)
    except ValueError as error:
        problem = Problem("--since", str(error))
        raise RequestError("there are no such runs", problems=(problem,)) from error


def _is_meant(record: Mapping[str, Any], *, job: str, after: float) -> bool:
    # A job may also be named by its directory, as for train.dispatch.
    is_job = not job or record.get("job") in (job, Path(job).name)
    return is_job and (store.started(record) or 0.0) >= after


def _run_status(
    run: RunDirectory, cluster: str, away: dict[str, str], *, connect: Connect
) -> RunStatus:
    """Return the status of a run; ask its cluster if the run may be active.

    `away` has clusters that did not answer and are not asked again: their
    names, with reasons. The run's cluster is added if it does not answer.
    """
    try:
        state = states.load(run)
    except TrainyardError as error:
        state = RunState(run=run.name, cluster=cluster, job=None)
        return RunStatus(run, state, unsure=f"run {run.name} is damaged: {error.what}", broken=True)

    if state.ended:
        return RunStatus(run, state)
    if cluster in away:
        return RunStatus(run, state, unsure=away[cluster])
    status = runs.status(run, connect)
    if status.unsure and status.is_away:
        away[cluster] = status.unsure
    return status


def status(run: RunDirectory, here: Here) -> RunStatus:
    return runs.status(run, _connector(here))


def logs(
    run: RunDirectory,
    here: Here,
    *,
    screen: Screen,
    task: str | None,
    everything: bool,
    follow: bool,
) -> RunStatus:
    """Show a run's logs, or with `follow` keep showing them until the run ends.

    Raises RequestError if the run has no task `task`. The caller's `screen`
    leaves out all other tasks.
    """
    tasks = run.record()["tasks"]
    if task is not None and task not in tasks:
        there_are = f"there are: {', '.join(tasks[:10])}{did_you_mean(task, tasks)}"
        problem = Problem("--task", there_are)
        raise RequestError(f"run {run.name} has no task {task!r}", problems=(problem,))

    if follow:
        return runs.logs(run, _connector(here), screen=screen, everything=everything)
    return runs.logs_so_far(run, _connector(here), screen=screen)


def watch(run: RunDirectory, here: Here, *, screen: Screen) -> RunStatus:
    with closing(screen):
        return runs.logs(run, _connector(here), screen=screen, everything=True)


def compare(names: Sequence[str], here: Here, *, tags: Sequence[str]) -> Comparison:
    """Compare runs by name.

    Raises RequestError for fewer than two runs, or a run named twice.
    """
    chosen = [find_run(name, here) for name in names]
    if len({run.name for run in chosen}) < max(2, len(chosen)):
        raise RequestError(
            "there is nothing to compare with",
            hint="Name two runs or more; see: trainyard train.list",
        )
    return comparing.compare(chosen, here.results, tags=tags)


def stop(run: RunDirectory, here: Here, *, screen: Screen) -> RunStatus:
    state = states.load(run)
    if state.ended:
        return RunStatus(run, state)
    return runs.stop(run, _connector(here), screen=screen)


def has_ended(run: RunDirectory) -> bool:
    return states.load(run).ended


class RunElsewhere(NamedTuple):
    """A run of another machine, and its user.

    `had_ended` is the state of a run that had ended before the stop.
    """

    user: str
    had_ended: str | None


def stop_elsewhere(
    name: str, file: str | None, progress: Progress, *, here: Here, dry: bool
) -> RunElsewhere | None:
    """Stop a run of another machine on the cluster of `file`; return the run.

    Nothing is stopped with `dry`. Returns None without a name or a file, for a
    run recorded on this machine, and if the cluster does not run or does not
    have the run. The caller then treats the run as one of this machine.
    """
    if not name or file is None:
        return None
    is_path = Path(name).name != name
    if is_path or (here.results / name).exists():
        return None

    cluster = clusters.find(file, here.environ, directory=here.directory)
    try:
        endpoint = clusters.connect(cluster)
    except NotReadyError:
        return None

    with ray_of(endpoint) as ray:
        job = ray.job(name)
        if job is None or "trainyard_run" not in job.metadata:
            return None
        if not dry and not job.ended:
            steps.run([run_guard.end_step(ray, [name])], progress)

    had_ended = job.status.lower() if job.ended else None
    return RunElsewhere(str(job.metadata.get("trainyard_by", "?")), had_ended)


def fetch(run: RunDirectory, here: Here, *, checkpoints: bool, screen: Screen) -> RunStatus:
    return runs.fetch(run, _connector(here), screen=screen, checkpoints=checkpoints)


def refuse_active(run: RunDirectory, here: Here, *, stop: str) -> None:
    """Raise RequestError for an active run, which cannot be resumed.

    The hint names the command `stop`. A run whose cluster does not answer
    passes.
    """
    now = status(run, here)
    if not now.state.ended and not now.unsure:
        hint = (
            f"Follow it: trainyard train.logs {run.name}; or stop it first: trainyard {stop} "
            f"{run.name}"
        )
        raise RequestError(f"run {run.name} is still active", hint=hint)


def fetch_to_resume(
    run: RunDirectory, tasks: Collection[str], *, here: Here, screen: Screen
) -> None:
    """Fetch outputs and checkpoints of these tasks.

    A failure is only noted: the tasks then resume from the files on this
    machine.
    """
    try:
        now = runs.fetch(run, _connector(here), screen=screen, checkpoints=True, of=tasks)
        error = now.unfetched
    except TrainyardError as raised:
        error = raised
    if error:
        screen.note(f"not all results of run {run.name} were fetched: {error.what}")


def report(run: RunDirectory, here: Here, *, screen: Screen) -> Path:
    """Fetch a run's new results, rewrite its report, and return its path."""
    now = runs.fetch_so_far(run, _connector(here), screen=screen)
    if now.unfetched:
        screen.note(f"there may be more: {now.unfetched.what}")
    return write_report(run.path)


def report_all(here: Here, file: str | None) -> Path:
    """Write the overview page of all runs, or those on the file's cluster."""
    rows = []
    for status in statuses(here, file):
        if status.broken:
            word = "broken"
        elif status.unsure:
            word = "unknown"
        else:
            word = status.state.state
        rows.append(OverviewRow(status.run, store.described(status.run), status.state, word))
    return write_overview(rows, here.results)


def find_run(name: str | None, here: Here, file: str | None = None) -> RunDirectory:
    """Return the run of this name, or the newest.

    With `file`, only runs on its cluster count.
    """
    return store.find(here.results, name, cluster=_cluster_name(here, file))


def run_to_stop(name: str | None, here: Here, file: str | None) -> RunDirectory:
    """Return the named run; without a name the only active run, or the newest.

    Raises RequestError if several runs are active, or none has this name.
    """
    chosen = name or the_open_run(statuses(here, file))
    name_of_cluster = _cluster_name(here, file)
    return store.find(here.results, chosen, cluster=name_of_cluster, elsewhere=_STOPPED_ELSEWHERE)


def the_open_run(statuses: Sequence[RunStatus]) -> str | None:
    """Return the name of the only active run; None if no run is active.

    Runs whose cluster does not answer count only if no other run is active.
    Raises RequestError if several runs count.
    """
    open_runs = [status for status in statuses if not status.state.ended and not status.broken]
    certain = [status for status in open_runs if not status.unsure]
    names = [status.run.name for status in certain or open_runs]

    if len(names) > 1:
        raise RequestError(
            f"{len(names)} runs are active",
            problems=(Problem("RUN", f"one of: {', '.join(names)}"),),
            hint=f"Name the one to stop: trainyard train.stop {names[0]}",
        )

    if names:
        return names[0]
    return None


def connect(run: RunDirectory, here: Here) -> Endpoint:
    """Connect to a run's cluster, by the run's copy of the cluster file."""
    cluster = clusters.find(str(run.cluster_file), here.environ, directory=here.directory)
    # The path of a token file is relative to the original cluster file, not to the copy.
    source = Path(str(run.record().get("cluster_file") or run.cluster_file))
    return clusters.connect(replace(cluster, site=replace(cluster.site, source=source)))


def _connector(here: Here) -> Connect:
    return partial(connect, here=here)


def _cluster_name(here: Here, file: str | None) -> str | None:
    if file is None:
        return None
    return clusters.find(file, here.environ, directory=here.directory).spec.name
