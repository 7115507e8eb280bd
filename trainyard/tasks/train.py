"""The tasks train.*: dispatch jobs; follow, stop, fetch and compare runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from trainyard import paths
from trainyard.api import lazy
from trainyard.console import command_hints
from trainyard.console.report import Outlived, Report, Table, browse, note, say
from trainyard.errors import RequestError
from trainyard.results import formats, store
from trainyard.tasks.command import FILE, Call, import_report, task, words_behind_dashes

if TYPE_CHECKING:
    from trainyard.console.run_screen import PrintedScreen
    from trainyard.dispatch.plan import Prepared
    from trainyard.dispatch.runs import RunStatus
    from trainyard.errors import TrainyardError
    from trainyard.operations.cluster import Cluster
    from trainyard.paths import Here
    from trainyard.results.compare import Final
    from trainyard.results.state import RunState, Task
    from trainyard.results.store import RunDirectory

HELP = {
    "run": (
        "A run's name or its beginning, or a job's name for its newest run (default: the newest "
        "run)."
    ),
    "file": (
        "Only runs of the cluster of this file, or of a bare name of clusters/ (default: of "
        "every cluster)."
    ),
}
FLAGS = {
    "set_": (
        "Set one value of the job file, PATH=VALUE, or of the cluster file, cluster.PATH=VALUE; "
        "repeatable."
    ),
    "wait": "With --no-wait: return as soon as the run has begun.",
    "skip_smoke": "Start without the smoke gate.",
}
_ROWS = 50
_TAILS = 5


@task(
    "set_",
    "backend",
    dry=True,
    positional=["job_dir"],
    iterable=["file"],
    help={
        **FLAGS,
        "job_dir": "Directory that holds job.yaml, or a bare name of jobs/.",
        "file": FILE,
    },
)
def dispatch(
    call: Call,
    job_dir: str,
    file: list[str] | None = None,
    wait: bool = True,
    skip_smoke: bool = False,
) -> Report | None:
    """Run a job; the exit code is the job's."""
    prepared, cluster = lazy.new_run.ready(
        job_dir,
        file or [],
        here=call.here,
        overrides=call.overrides,
        backend=call.backend,
    )
    return send(call, prepared, cluster, ended=ended, wait=wait, skip_smoke=skip_smoke)


@task(
    "set_",
    "backend",
    "file",
    dry=True,
    positional=["run"],
    help={
        **FLAGS,
        "run": HELP["run"],
        "file": "Cluster file of another cluster (default: the run's own cluster).",
    },
)
def resume(call: Call, run: str = "", wait: bool = True, skip_smoke: bool = False) -> Report | None:
    """Begin a new run of the tasks that did not succeed, from their last checkpoints."""
    found = lazy.runs.find_run(run or None, call.here)
    prepared, cluster = lazy.resume.ready(
        found,
        call.file,
        here=call.here,
        overrides=call.overrides,
        backend=call.backend,
        screen=screen_for(call),
    )
    return send(call, prepared, cluster, ended=ended, wait=wait, skip_smoke=skip_smoke)


@task(
    "file",
    dry=True,
    name="list",
    help={
        "file": HELP["file"],
        "job": "Only runs of this job.",
        "state": "Only runs in this state: waiting, running, succeeded, failed, stopped.",
        "since": "Only runs that were dispatched within this time: 90s, 5m, 2h, 7d.",
    },
)
def list_(call: Call, job: str = "", state: str = "", since: str = "") -> Report:
    """List the runs of the directory results/ here, the newest first."""
    runs = lazy.runs.statuses(call.here, call.file, job=job, state=state, since=since)
    return listed(runs, call.here)


@task("file", dry=True, positional=["run"], help=HELP)
def status(call: Call, run: str = "") -> Report:
    """Show a run's state."""
    now = lazy.runs.status(find(call, run), call.here)
    state = now.state
    moment = time.time()
    if now.unsure is not None:
        moment = state.last_contact or 0.0

    body: list[str | Table] = [*tasks_table(state, now=moment)]
    if state.kept_free:
        from trainyard_runner.wire import fit

        body.append(f"kept free for what tasks start through Ray: {fit.in_words(state.kept_free)}")
    if state.waiting:
        body.append(state.waiting.text)
    body += lazy.account.lines(now.run, state)

    summary = _summary(state)
    if now.unsure:
        summary += f"; unknown since then ({now.unsure})"
    return Report(now.document(), [*body, summary], next=_next(now))


@task(
    "file",
    dry=True,
    positional=["run"],
    help={
        **HELP,
        "task": "Only show the output of this task.",
        "all": "Show everything from the beginning, also lines that were shown before.",
        "follow": "With --no-follow: only show what has been printed so far.",
    },
)
def logs(
    call: Call, run: str = "", task: str = "", all: bool = False, follow: bool = True
) -> Report:
    """Follow a run's logs from the last line shown here; Ctrl-C does not stop the run."""
    only = task or None
    screen = screen_for(call, only=only)
    directory = find(call, run)
    now = lazy.runs.logs(
        directory, call.here, screen=screen, task=only, everything=all, follow=follow
    )
    return ended(now)


@task("file", dry=True, positional=["run"], help=HELP)
def stop(call: Call, run: str = "") -> Report:
    """Stop a run and wait until it has ended; needs RUN if several runs are active.

    With -f, RUN may be a run that another machine dispatched to that cluster, by its whole name, as
    cluster.status shows it.
    """
    found = lazy.runs.stop_elsewhere(run, call.file, call.progress, here=call.here, dry=call.dry)
    if found is None:
        return stopped(call, find(call, run, to_stop=True))
    if found.had_ended:
        document = {"run": run, "state": found.had_ended, "by": found.user}
        return Report(
            document, [f"run {run} of {found.user} had already ended ({found.had_ended})"]
        )
    if call.dry:
        return call.skipped(f"run {run}, dispatched by {found.user}")
    document = {"run": run, "state": "stopped", "by": found.user}
    return Report(document, [f"run {run} of {found.user}: stopped"])


@task("file", positional=["run"], help={**HELP, "checkpoints": "The tasks' last checkpoints too."})
def fetch(call: Call, run: str = "", checkpoints: bool = False) -> Report:
    """Fetch a run's missing outputs."""
    directory = find(call, run)
    now = lazy.runs.fetch(directory, call.here, checkpoints=checkpoints, screen=screen_for(call))
    name = now.run.name
    state = now.state

    directories = []
    for kind in ("outputs", "checkpoints"):
        # Names with a dot are Trainyard's: unfinished downloads, and numbers of checkpoints.
        for path in sorted(now.run.path.glob(f"{kind}/[!.]*")):
            directories.append(str(path))

    lines = directories[:_ROWS]
    if not lines and state.ended:
        lines = [f"run {name} left nothing"]
    elif not lines:
        lines = [f"run {name} has left nothing yet"]

    # This command fails if results cannot be fetched, not if the run failed.
    return Report({"run": name, "directories": directories}, lines, error=now.unfetched)


@task(
    "file",
    positional=["run"],
    help={**HELP, "all": "Write one page of all runs instead: results/index.html."},
)
def report(call: Call, run: str = "", all: bool = False) -> Report:
    """Write a run's report again: one self-contained HTML page."""
    if all and run:
        raise RequestError(
            f"--all writes a page of all runs, and takes no RUN: {run}",
            hint="Leave one of the two out.",
        )
    if all:
        page = lazy.runs.report_all(call.here, call.file)
        return Report({"report": str(page)}, [str(page)])
    path = lazy.runs.report(find(call, run), call.here, screen=screen_for(call))
    return Report({"report": str(path)}, [f"report: {paths.shown(path)}"])


@task(
    "file",
    positional=["run"],
    help={**HELP, "browser": "With --no-browser: only keep the page up to date."},
)
def watch(call: Call, run: str = "", browser: bool = True) -> Report:
    """Keep a run's report up to date, and open it in a browser; Ctrl-C does not stop the run."""
    directory = find(call, run)
    screen = lazy.run_screen.ReportScreen(directory, note=_remark)
    say(directory.report, file=_stream(call), flush=True)
    if browser:
        browse(directory.report.resolve().as_uri())

    now = lazy.runs.watch(directory, call.here, screen=screen)
    succeeded = now.state.ended and now.state.exit == 0
    if succeeded:
        return replace(ended(now), next="trainyard train.list")
    return ended(now)


@task(
    positional=["runs"],
    iterable=["runs", "tag"],
    help={
        "runs": "Two or more names of runs, their beginnings, or names of jobs (their newest runs).",
        "tag": (
            "Compare by this scalar; repeatable (default: the three that probably matter most)."
        ),
    },
)
def compare(call: Call, runs: list[str] | None = None, tag: list[str] | None = None) -> Report:
    """Compare runs: curves on one page, and tables of results and differences of job files."""
    comparison = lazy.runs.compare(runs or [], call.here, tags=tag or [])
    names = []
    rows = []
    for number, run in enumerate(comparison.runs, 1):
        state = run.state
        done = f"{state.done}/{len(state.tasks)}"
        finals = [_final(run.finals.get(tag)) for tag in comparison.tags]
        names.append(f"{number}  {state.run}")
        rows.append([number, state.state, done, _seconds(state.seconds), *finals])

    columns = ["run", "state", "succeeded", "seconds", *comparison.tags]
    body: list[str | Table] = [*names, Table(columns, rows)]
    if comparison.differences:
        columns = ["differs", *(str(row[0]) for row in rows)]
        differences = [[name, *values] for name, values in comparison.differences.items()]
        body.append(Table(columns, differences))
    if comparison.tasks_left_out:
        body.append(f"The curves of {comparison.tasks_left_out} more tasks were not read.")
    body.append(f"page: {paths.shown(comparison.page)}")

    return Report(comparison.document(), body)


@task(
    dry=True,
    name="import",
    positional=["source"],
    help={
        "source": "A JobCfg file (.py), a task_runner file (.yaml), a ~/.cluster_config, a file "
        "with a command line; or a command line itself, after `--`.",
        "output": "The directory to write the job to (default: jobs/NAME).",
        "cfg_class": "The JobCfg class, if the file has several.",
        "workflow": "Isaac Lab's training script (default: the one of the file's generation).",
        "rl_library": (
            "The library, for a script that supports several: rl_games, rsl_rl, skrl, sb3."
        ),
        "stopper": "A stopper class of the file.",
        "progress_reporter": "A progress reporter class of the file.",
        "num_samples": "The number of trainings, including repeats, as Isaac Lab counts.",
        "repeat_run_count": "Repeats of each configuration.",
        "num_workers_per_node": "How many trainings share a node; with 1, each gets a whole node.",
        "metric": "The scalar to tune for.",
        "mode": "max or min.",
        "python": "The command that runs Isaac Lab's scripts in the image.",
    },
)
def import_(  # noqa: PLR0913 (the command's flags)
    call: Call,
    source: str = "",
    output: str = "",
    cfg_class: str = "",
    workflow: str = "",
    rl_library: str = "",
    stopper: str = "",
    progress_reporter: str = "",
    num_samples: int = 100,
    repeat_run_count: int = 3,
    num_workers_per_node: int = 1,
    metric: str = "rewards/time",
    mode: str = "max",
    python: str = "/workspace/isaaclab/isaaclab.sh -p",
) -> Report:
    """Write a job, or cluster files, from files or command lines of Isaac Lab's Ray scripts.

    Overwrites nothing.
    """
    options = lazy.importing.Options(
        cfg_class=cfg_class,
        workflow=workflow,
        rl_library=rl_library,
        stopper=stopper,
        progress_reporter=progress_reporter,
        num_samples=num_samples,
        repeat_run_count=repeat_run_count,
        num_workers_per_node=num_workers_per_node,
        metric=metric,
        mode=mode,
        python=python,
    )
    path = Path(source) if source else None
    found = lazy.importing.convert(path, words_behind_dashes(), options)
    return import_report(call, found, output)


def listed(runs: Sequence[RunStatus], here: Here) -> Report:
    """Report runs, each in one row."""
    if not runs:
        home = paths.shown(here.results)
        next = f"trainyard train.dispatch {paths.example_job(here.directory)}"
        return Report({"runs": []}, [f"there are no such runs in {home}"], next=next)

    columns = ["run", "state", "done", "cluster", "started", "took", "user"]
    if any(run.state.resumes for run in runs):
        columns.append("resumes")

    documents = []
    rows = []
    silent = {}
    broken = []
    for run in runs:
        document = _short(run)
        documents.append(document)
        rows.append(_list_row(run, document)[: len(columns)])
        if run.broken:
            broken.append(f"broken: {run.unsure}")
        elif run.unsure:
            silent[run.state.cluster] = run.unsure

    lines = [f"unknown, on cluster {cluster}: {reason}" for cluster, reason in silent.items()]
    table = Table(columns, rows, may_shorten=("cluster", "user"))
    whole = [run for run in runs if not run.broken]
    next = f"trainyard train.status {whole[0].run.name}" if whole else ""
    return Report({"runs": documents}, [table, *lines, *broken], next=next)


def stopped(call: Call, found: RunDirectory) -> Report:
    """Stop a run, await its end, and report if the run had ended before."""
    if call.dry:
        return call.skipped(f"run {found.name}")

    had_ended = lazy.runs.has_ended(found)
    # Only notes are shown: the user did not ask for the run's output.
    now = lazy.runs.stop(found, call.here, screen=lazy.follow.Screen(note=_remark))
    state = now.state
    line = f"run {now.run.name} {state.state}"
    if had_ended:
        line = f"run {now.run.name} had already ended ({state.state})"

    next = state.resume_command if state.state == "stopped" else ""
    error = None if state.ended else now.error
    return Report(now.document(), [line], next=next, error=error)


def send(
    call: Call,
    prepared: Prepared,
    cluster: Cluster,
    *,
    ended: Callable[[RunStatus], Report],
    wait: bool,
    skip_smoke: bool,
    only: str | None = None,
) -> Report | None:
    """Dispatch a job and show its output; with --dry, only describe the job.

    `ended` makes the report (with --dry there is none). `only` is the one task
    whose output is shown, "" for none.
    """
    if call.dry:
        note("\n".join(lazy.new_run.preview(prepared)))
        return None

    # The run is followed to its end even if the reader of stdout ends (`| head`).
    stream = Outlived(_stream(call))
    now, _ = lazy.new_run.dispatch(
        cluster,
        prepared,
        lazy.launch.Asked(call.here.results, command=sys.argv, wait=wait, skip_smoke=skip_smoke),
        progress=call.progress,
        note=note,
        screen=lazy.run_screen.PrintedScreen(stream, only=only),
    )

    return ended(replace(now, error=now.error or stream.error(now.run.name)))


def find(call: Call, run: str, *, to_stop: bool = False) -> RunDirectory:
    """Find a run. Commands in later messages get `-f` with its cluster file."""
    find = lazy.runs.run_to_stop if to_stop else lazy.runs.find_run
    directory: RunDirectory = find(run or None, call.here, call.file)
    command_hints.remember("train", {"file": str(directory.cluster_file)})
    return directory


def screen_for(call: Call, *, only: str | None = None) -> PrintedScreen:
    return lazy.run_screen.PrintedScreen(_stream(call), only=only)


def _stream(call: Call) -> TextIO:
    return sys.stderr if call.json else sys.stdout


def _remark(text: str) -> None:
    note(f"-- {text}")


def ended(now: RunStatus) -> Report:
    """Report how a followed run ended, or that it is still active."""
    run = now.run
    state = now.state
    if now.error and not state.ended:
        # Whether the run is active is unknown; the error says what to do.
        return Report(now.document(), error=now.error)
    if not state.ended:
        notes = [f"run {run.name} is still active"]
        return Report(now.document(), notes=notes, next=f"trainyard train.logs {run.name}")

    notes = []
    if run.report.exists():
        notes = [f"results: {paths.shown(run.path)}", f"report: {paths.shown(run.report)}"]

    body: list[str | Table] = [
        *tasks_table(state, now=time.time()),
        *last_lines(state),
        *lazy.account.lines(run, state),
        _summary(state),
    ]
    next = _next(now) if notes else ""
    return Report(now.document(), body, notes=notes, next=next, error=with_next(now.error, next))


def with_next(error: TrainyardError | None, next: str) -> TrainyardError | None:
    if error and next and error.hint is None:
        error.hint = f"See: {next}"
    return error


def _final(final: Final | None) -> str:
    if final is None:
        return ""
    mean = formats.number(final["mean"])
    if final["spread"] is None:
        return mean
    return f"{mean} ± {formats.number(final['spread'])} ({final['count']})"


def _next(now: RunStatus) -> str:
    if now.state.ended and now.state.exit == 0:
        return f"trainyard train.watch {now.run.name}"
    return f"trainyard train.logs {now.run.name}"


def tasks_table(state: RunState, *, now: float) -> list[Table]:
    """Return a table with one row per task, [] if it has no rows.

    With more than _ROWS tasks, the table has the first _ROWS that did not
    succeed.
    """
    tasks = list(state.tasks.values())
    if len(tasks) > _ROWS:
        # Thousands of tasks that succeeded would hide the others.
        tasks = [task for task in tasks if task.state != "succeeded"][:_ROWS]
    if not tasks:
        return []
    columns = ["task", "state", "attempts", "node", "seconds", "exit", "reason"]
    return [Table(columns, [_row(state, task, now=now) for task in tasks])]


def _row(state: RunState, task: Task, *, now: float) -> list[object]:
    # The task's cost: the sum over all attempts.
    seconds = None
    for attempt in task.attempts:
        took = state.seconds_of(attempt, now=now)
        if took is not None:
            seconds = (seconds or 0.0) + took

    last = task.last
    return [
        task.name,
        task.state,
        len(task.attempts),
        last.node,
        _seconds(seconds),
        last.exit_code,
        task.reason,
    ]


def last_lines(state: RunState, *, most: int = _TAILS) -> Iterator[str]:
    """Yield the last lines of the first tasks that failed."""
    failed = [each for each in state.tasks.values() if each.state == "failed"]
    for failure in failed[:most]:
        reason = failure.reason or "no reason known"
        tail = failure.last.tail
        if tail:
            yield f"last lines of {failure.name} ({reason}):"
        else:
            # The task printed nothing, or so many tasks failed that only the logs have last lines.
            yield f"{failure.name} failed: {reason}"
        for line in tail:
            text = lazy.run_screen.plain(line.encode("utf-8", "surrogateescape"))
            yield f"    {text}"


def _summary(state: RunState) -> str:
    resumes = f" (resumes {state.resumes['run']})" if state.resumes else ""
    took = _seconds(state.seconds, before=" in ", after=" s")
    summary = f"run {state.run}{resumes} {state.state}{took}"
    counts = [f"{count} {name}" for name, count in state.counts.items() if count]
    if counts:
        summary += f": {', '.join(counts)}"
    return summary


def _seconds(count: float | None, *, before: str = "", after: str = "") -> str:
    if count is None:
        return ""
    return f"{before}{count:.1f}{after}"


def _list_row(found: RunStatus, document: dict[str, Any]) -> list[object]:
    state = found.state
    began = store.started(document)
    word = document["state"]
    if found.unsure and not found.broken:
        word = "unknown"
    return [
        found.run.name,
        word,
        f"{state.done}/{len(state.tasks)}",
        state.cluster,
        began and formats.age(time.time() - began),
        _seconds(state.seconds, after=" s"),
        document["user"],
        state.resumes and state.resumes["run"],
    ]


def _short(found: RunStatus) -> dict[str, Any]:
    record = store.described(found.run)
    document: dict[str, Any] = {**found.state.summary(), "unsure": found.unsure}
    if found.broken:
        document["state"] = "broken"
    document["started"] = record.get("started")
    document["user"] = record.get("user")
    return document
