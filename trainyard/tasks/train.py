"""Run jobs: dispatch, look, stop, bring home."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from invoke.context import Context

from trainyard.tasks import command_hints
from trainyard.tasks.command import task

if TYPE_CHECKING:
    from trainyard.results.store import RunDirectory

RUN = "Run name or an unambiguous beginning of it (default: the newest run)."
FILE = "Only runs of the cluster of this file, or of a bare name of clusters/ (default: of every cluster)."
JSON = "Print one JSON document on stdout; everything else goes to stderr."


@task(
    positional=["job_dir"],
    iterable=["file", "set_"],
    help={
        "job_dir": "Directory that holds job.yaml, or a bare name of jobs/.",
        "file": "Cluster file, or a bare name of clusters/ (default: $TRAINYARD_CLUSTER, else local).",
        "set_": "Set one value of the job file, PATH=VALUE, or of the cluster file, cluster.PATH=VALUE; repeatable.",
        "wait": "With --no-wait: leave as soon as the run has begun.",
        "skip_smoke": "Start without the smoke gate.",
        "backend": "Use another backend than the file names.",
        "json": JSON,
    },
)
def dispatch(
    context: Context,
    job_dir: str,
    file: list[str] | None = None,
    set_: list[str] | None = None,
    wait: bool = True,
    skip_smoke: bool = False,
    backend: str = "",
    json: bool = False,
) -> None:
    """Run a job; the exit code is the job's."""
    from trainyard import training
    from trainyard.tasks import train_output as output

    ready = training.ready(job_dir, file or [], overrides=set_ or [], backend=backend or None)
    output.sending(ready.prepared)
    if context.config.run.dry:
        return
    screen = output.screen(json=json)
    outcome = training.dispatch(ready, command=sys.argv, wait=wait, skip_smoke=skip_smoke, screen=screen)
    output.ended(outcome, json=json)


@task(
    name="list",
    help={
        "file": FILE,
        "job": "Only runs of this job.",
        "state": "Only runs in this state: waiting, running, succeeded, failed, stopped.",
        "since": "Only runs that were dispatched at most so long ago: 90s, 5m, 2h, 7d.",
        "json": JSON,
    },
)
def list_(
    context: Context, file: str | None = None, job: str = "", state: str = "", since: str = "", json: bool = False
) -> None:
    """List the runs of this machine, the newest first."""
    from trainyard import training
    from trainyard.tasks import train_output as output

    output.listed(training.filtered(file, job=job, state=state, since=since), json=json)


@task(positional=["run"], help={"run": RUN, "file": FILE, "json": JSON})
def status(context: Context, run: str = "", file: str | None = None, json: bool = False) -> None:
    """Say how a run stands."""
    from trainyard import training
    from trainyard.tasks import train_output as output

    output.standing(training.standing(_find(run, file)), json=json)


@task(
    positional=["run"],
    help={
        "run": RUN,
        "file": FILE,
        "task": "Only what this task prints.",
        "all": "Everything from the beginning, also what was shown here before.",
        "follow": "With --no-follow: only what has been printed so far.",
        "json": JSON,
    },
)
def logs(
    context: Context,
    run: str = "",
    file: str | None = None,
    task: str = "",
    all: bool = False,
    follow: bool = True,
    json: bool = False,
) -> None:
    """Follow a run from where this machine stopped; print all of one that has ended. Ctrl-C only stops looking."""
    from trainyard import training
    from trainyard.tasks import train_output as output

    found = _find(run, file)
    screen = output.screen(json=json, only=task or None)
    outcome = training.logs(found, screen=screen, task=task or None, everything=all, follow=follow)
    output.ended(outcome, json=json)


@task(positional=["run"], help={"run": RUN, "file": FILE, "json": JSON})
def stop(context: Context, run: str = "", file: str | None = None, json: bool = False) -> None:
    """End a run, and wait until it has ended; where several go on, RUN says which."""
    from trainyard import training
    from trainyard.tasks import train_output as output

    output.stopped(training.stop(_found(training.run_to_stop(run or None, file)), screen=output.Notes()), json=json)


@task(
    positional=["run"], help={"run": RUN, "file": FILE, "checkpoints": "The tasks' last checkpoints too.", "json": JSON}
)
def fetch(
    context: Context, run: str = "", file: str | None = None, checkpoints: bool = False, json: bool = False
) -> None:
    """Bring home outputs that are not here yet."""
    from trainyard import training
    from trainyard.tasks import train_output as output

    found = _find(run, file)
    output.fetched(training.fetch(found, checkpoints=checkpoints, screen=output.screen(json=json)), json=json)


@task(positional=["run"], help={"run": RUN, "file": FILE, "json": JSON})
def report(context: Context, run: str = "", file: str | None = None, json: bool = False) -> None:
    """Write a run's report anew: one HTML page that needs nothing else."""
    from trainyard import training
    from trainyard.tasks import train_output as output

    found = _find(run, file)
    output.reported(training.report(found, screen=output.screen(json=json)), json=json)


@task(
    positional=["run"],
    help={"run": RUN, "file": FILE, "browser": "With --no-browser: only keep the page fresh.", "json": JSON},
)
def watch(context: Context, run: str = "", file: str | None = None, browser: bool = True, json: bool = False) -> None:
    """Keep a run's report fresh, and open in a browser, until the run has ended. Ctrl-C only stops watching."""
    from trainyard import training
    from trainyard.tasks import train_output as output

    found = _find(run, file)
    screen = output.report_screen(found, json=json, browse=browser)
    output.ended(training.watch(found, screen=screen), json=json)


@task(
    positional=["runs"],
    iterable=["runs", "tag"],
    help={
        "runs": "Run names or unambiguous beginnings of them, two or more.",
        "tag": "Compare by this scalar; repeatable (default: the three that most likely matter most).",
        "json": JSON,
    },
)
def compare(context: Context, runs: list[str], tag: list[str], json: bool = False) -> None:
    """Compare runs: their curves on one page, how they ended and what differs in their job files as a table."""
    from trainyard import training
    from trainyard.tasks import train_output as output

    output.compared(training.compare(runs, tags=tag), json=json)


def _find(run: str, file: str | None) -> RunDirectory:
    from trainyard import training

    return _found(training.find_run(run or None, file))


def _found(run: RunDirectory) -> RunDirectory:
    """Return the run; what messages say of its cluster is about the file that was recorded with it."""
    command_hints.remember("train", {"file": str(run.cluster_file)})
    return run
