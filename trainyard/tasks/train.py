"""Run jobs: dispatch, look, stop, bring home."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainyard.tasks import command_hints, lazy
from trainyard.tasks.command import FILE, Call, task
from trainyard.tasks.report import Report

if TYPE_CHECKING:
    from trainyard.results.store import RunDirectory

HELP = {
    "run": "Run name or an unambiguous beginning of it (default: the newest run).",
    "file": "Only runs of the cluster of this file, or of a bare name of clusters/ (default: of every cluster).",
}


@task(
    "set_",
    "backend",
    dry=True,
    positional=["job_dir"],
    iterable=["file"],
    help={
        "job_dir": "Directory that holds job.yaml, or a bare name of jobs/.",
        "file": FILE,
        "set_": "Set one value of the job file, PATH=VALUE, or of the cluster file, cluster.PATH=VALUE; repeatable.",
        "wait": "With --no-wait: leave as soon as the run has begun.",
        "skip_smoke": "Start without the smoke gate.",
    },
)
def dispatch(
    call: Call, job_dir: str, file: list[str] | None = None, wait: bool = True, skip_smoke: bool = False
) -> Report | None:
    """Run a job; the exit code is the job's."""
    prepared, cluster = lazy.training.ready(job_dir, file or [], overrides=call.overrides, backend=call.backend)
    lazy.train_report.begin(prepared)
    if call.dry:
        return None
    ended = lazy.training.dispatch(
        prepared,
        cluster,
        command=sys.argv,
        wait=wait,
        skip_smoke=skip_smoke,
        progress=call.progress,
        screen=lazy.train_report.screen(json=call.json),
    )
    return lazy.train_report.ended(ended)


@task(
    "file",
    dry=True,
    name="list",
    help={
        "file": HELP["file"],
        "job": "Only runs of this job.",
        "state": "Only runs in this state: waiting, running, succeeded, failed, stopped.",
        "since": "Only runs that were dispatched at most so long ago: 90s, 5m, 2h, 7d.",
    },
)
def list_(call: Call, job: str = "", state: str = "", since: str = "") -> Report:
    """List the runs of this machine, the newest first."""
    return lazy.train_report.listed(lazy.training.statuses(call.file, job=job, state=state, since=since))


@task("file", dry=True, positional=["run"], help=HELP)
def status(call: Call, run: str = "") -> Report:
    """Say how a run stands."""
    return lazy.train_report.status(lazy.training.status(_find(call, run)))


@task(
    "file",
    dry=True,
    positional=["run"],
    help={
        **HELP,
        "task": "Only what this task prints.",
        "all": "Everything from the beginning, also what was shown here before.",
        "follow": "With --no-follow: only what has been printed so far.",
    },
)
def logs(call: Call, run: str = "", task: str = "", all: bool = False, follow: bool = True) -> Report:
    """Follow a run from where this machine stopped; print all of one that has ended. Ctrl-C only stops looking."""
    found = _find(call, run)
    screen = lazy.train_report.screen(json=call.json, only=task or None)
    return lazy.train_report.ended(
        lazy.training.logs(found, screen=screen, task=task or None, everything=all, follow=follow)
    )


@task("file", dry=True, positional=["run"], help=HELP)
def stop(call: Call, run: str = "") -> Report:
    """End a run, and wait until it has ended; where several go on, RUN says which."""
    found = _remembered(lazy.training.run_to_stop(run or None, call.file))
    if call.dry:
        return call.skipped(f"run {found.name}")
    return lazy.train_report.stopped(lazy.training.stop(found, screen=lazy.train_report.Notes()))


@task("file", positional=["run"], help={**HELP, "checkpoints": "The tasks' last checkpoints too."})
def fetch(call: Call, run: str = "", checkpoints: bool = False) -> Report:
    """Bring home outputs that are not here yet."""
    screen = lazy.train_report.screen(json=call.json)
    return lazy.train_report.fetched(lazy.training.fetch(_find(call, run), checkpoints=checkpoints, screen=screen))


@task("file", positional=["run"], help=HELP)
def report(call: Call, run: str = "") -> Report:
    """Write a run's report anew: one HTML page that needs nothing else."""
    path = lazy.training.report(_find(call, run), screen=lazy.train_report.screen(json=call.json))
    return Report({"report": str(path)}, [str(path)])


@task("file", positional=["run"], help={**HELP, "browser": "With --no-browser: only keep the page fresh."})
def watch(call: Call, run: str = "", browser: bool = True) -> Report:
    """Keep a run's report fresh, and open in a browser, until the run has ended. Ctrl-C only stops watching."""
    found = _find(call, run)
    screen = lazy.train_report.report_screen(found, json=call.json, browse=browser)
    return lazy.train_report.ended(lazy.training.watch(found, screen=screen))


@task(
    positional=["runs"],
    iterable=["runs", "tag"],
    help={
        "runs": "Run names or unambiguous beginnings of them, two or more.",
        "tag": "Compare by this scalar; repeatable (default: the three that most likely matter most).",
    },
)
def compare(call: Call, runs: list[str] | None = None, tag: list[str] | None = None) -> Report:
    """Compare runs: their curves on one page, how they ended and what differs in their job files as a table."""
    return lazy.train_report.compared(lazy.training.compare(runs or [], tags=tag or []))


def _find(call: Call, run: str) -> RunDirectory:
    return _remembered(lazy.training.find_run(run or None, call.file))


def _remembered(run: RunDirectory) -> RunDirectory:
    """Return the run; what messages say of its cluster is about the file that was recorded with it."""
    command_hints.remember("train", {"file": str(run.cluster_file)})
    return run
