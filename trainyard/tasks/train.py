"""Run jobs: dispatch, look, stop, bring home."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from trainyard_runner.wire import fit

from trainyard import paths
from trainyard.console import command_hints
from trainyard.console.report import Outlived, Report, Table, browse, note, say
from trainyard.errors import RequestError
from trainyard.results import formats, store
from trainyard.tasks import lazy
from trainyard.tasks.command import FILE, Call, task, words_behind_dashes
from trainyard.wording import named

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
        "Run name, an unambiguous beginning of it, or a job's name: its newest run (default: "
        "the newest run)."
    ),
    "file": (
        "Only runs of the cluster of this file, or of a bare name of clusters/ (default: of "
        "every cluster)."
    ),
}
_ROWS = 50
_TAILS = 5
_NAMED = 20


@task(
    "set_",
    "backend",
    dry=True,
    positional=["job_dir"],
    iterable=["file"],
    help={
        "job_dir": "Directory that holds job.yaml, or a bare name of jobs/.",
        "file": FILE,
        "set_": (
            "Set one value of the job file, PATH=VALUE, or of the cluster file, "
            "cluster.PATH=VALUE; repeatable."
        ),
        "wait": "With --no-wait: leave as soon as the run has begun.",
        "skip_smoke": "Start without the smoke gate.",
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
    ready = lazy.runs.ready(
        job_dir,
        file or [],
        here=call.here,
        overrides=call.overrides,
        backend=call.backend,
    )
    now = dispatched(call, *ready, wait=wait, skip_smoke=skip_smoke)
    return ended(now) if now else None


@task(
    "set_",
    "backend",
    "file",
    dry=True,
    positional=["run"],
    help={
        "run": HELP["run"],
        "file": "Another cluster than that of the run, by its file.",
        "set_": (
            "Set one value of the job file, PATH=VALUE, or of the cluster file, "
            "cluster.PATH=VALUE; repeatable."
        ),
        "wait": "With --no-wait: leave as soon as the run has begun.",
        "skip_smoke": "Start without the smoke gate.",
    },
)
def resume(call: Call, run: str = "", wait: bool = True, skip_smoke: bool = False) -> Report | None:
    """Run again what did not succeed, from its last checkpoints: a new run, which skips what
    succeeded.
    """
    found = lazy.runs.find_run(run or None, call.here)
    ready = lazy.resume.ready(
        found,
        call.file,
        here=call.here,
        overrides=call.overrides,
        backend=call.backend,
        screen=screen_for(call),
    )
    now = dispatched(call, *ready, wait=wait, skip_smoke=skip_smoke)
    return ended(now) if now else None


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
    """List the runs of the directory results/ here, the newest first."""
    return listed(
        lazy.runs.statuses(call.here, call.file, job=job, state=state, since=since),
        call.here,
    )


@task("file", dry=True, positional=["run"], help=HELP)
def status(call: Call, run: str = "") -> Report:
    """Show a run's state."""
    now = lazy.runs.status(find(call, run), call.here)
    state = now.state
    body: list[str | Table] = [
        *tasks_table(state, now=time.time() if now.unsure is None else state.last_contact or 0.0)
    ]
    if state.kept_free:
        body.append(f"kept free for what tasks start through Ray: {fit.in_words(state.kept_free)}")
    if state.waiting:
        body.append(state.waiting["text"])
    body += lazy.account.lines(now.run, state)
    body.append(_summary(state) + (f"; unknown since then ({now.unsure})" if now.unsure else ""))
    return Report(now.document(), body, next=_next(now))


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
def logs(
    call: Call, run: str = "", task: str = "", all: bool = False, follow: bool = True
) -> Report:
    """Follow a run from where this machine stopped; print all of one that has ended. Ctrl-C only
    stops looking.
    """
    screen = screen_for(call, only=task or None)
    found = find(call, run)
    now = lazy.runs.logs(
        found,
        call.here,
        screen=screen,
        task=task or None,
        everything=all,
        follow=follow,
    )
    return ended(now)


@task("file", dry=True, positional=["run"], help=HELP)
def stop(call: Call, run: str = "") -> Report:
    """Stop a run, and wait until it has ended; if several are active, RUN says which.

    With -f, a run that was dispatched elsewhere is stopped by its whole name, as cluster.status
    shows it.
    """
    by = lazy.runs.stop_elsewhere(run, call.file, call.progress, here=call.here, dry=call.dry)
    if by is not None:
        if call.dry:
            return call.skipped(f"run {run}, dispatched by {by}")
        return Report({"run": run, "state": "stopped", "by": by}, [f"run {run} of {by}: stopped"])
    return stopped(call, find(call, run, to_stop=True))


@task("file", positional=["run"], help={**HELP, "checkpoints": "The tasks' last checkpoints too."})
def fetch(call: Call, run: str = "", checkpoints: bool = False) -> Report:
    """Bring home outputs that are not here yet."""
    now = lazy.runs.fetch(
        find(call, run), call.here, checkpoints=checkpoints, screen=screen_for(call)
    )
    name, state = now.run.name, now.state
    # Names with a dot in front are ours: what is on its way, and which checkpoint it was.
    kinds = ("outputs", "checkpoints")
    directories = [
        str(path) for kind in kinds for path in sorted(now.run.path.glob(f"{kind}/[!.]*"))
    ]
    nothing = f"run {name} {'left nothing' if state.ended else 'has left nothing yet'}"
    # Only what could not be fetched is an error.
    error = None

    if not state.ended or state.exit == 0:
        error = now.error

    return Report(
        {"run": name, "directories": directories}, directories[:_ROWS] or [nothing], error=error
    )


@task(
    "file",
    positional=["run"],
    help={**HELP, "all": "Write one page over all runs instead: results/index.html."},
)
def report(call: Call, run: str = "", all: bool = False) -> Report:
    """Write a run's report again: one HTML page that needs nothing else."""
    if all and run:
        raise RequestError(
            f"--all is a page over all runs, and {run} is one of them",
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
    help={**HELP, "browser": "With --no-browser: only keep the page fresh."},
)
def watch(call: Call, run: str = "", browser: bool = True) -> Report:
    """Keep a run's report fresh, and open in a browser, until the run has ended. Ctrl-C only stops
    watching.
    """
    from trainyard.console.run_screen import ReportScreen

    found = find(call, run)
    screen = ReportScreen(found, note=_remark)
    say(found.report, file=sys.stderr if call.json else sys.stdout, flush=True)
    if browser:
        browse(found.report.resolve().as_uri())
    now = lazy.runs.watch(found, call.here, screen=screen)
    succeeded = now.state.ended and now.state.exit == 0
    if succeeded:
        return replace(ended(now), next="trainyard train.list")
    return ended(now)


@task(
    positional=["runs"],
    iterable=["runs", "tag"],
    help={
        "runs": "Run names, beginnings of them, or names of jobs (their newest runs), two or more.",
        "tag": (
            "Compare by this scalar; repeatable (default: the three that most likely matter most)."
        ),
    },
)
def compare(call: Call, runs: list[str] | None = None, tag: list[str] | None = None) -> Report:
    """Compare runs: their curves on one page, how they ended and what differs in their job files as
    a table.
    """
    comparison = lazy.runs.compare(runs or [], call.here, tags=tag or [])
    rows = []
    names = [f"{number}  {each.state.run}" for number, each in enumerate(comparison.runs, 1)]

    for number, each in enumerate(comparison.runs, 1):
        done = f"{each.state.done}/{len(each.state.tasks)}"
        finals = [_final(each.finals.get(tag)) for tag in comparison.tags]
        rows.append([number, each.state.state, done, _seconds(each.state.seconds), *finals])

    columns = ["run", "state", "succeeded", "seconds", *comparison.tags]
    body: list[str | Table] = [*names, Table(columns, rows)]
    if comparison.differences:
        columns = ["differs", *(str(row[0]) for row in rows)]
        body.append(
            Table(columns, [[name, *each] for name, each in comparison.differences.items()])
        )

    if comparison.tasks_left_out:
        body.append(f"The curves of {comparison.tasks_left_out} more tasks were not read.")

    return Report(comparison.document(), [*body, f"page: {paths.shown(comparison.page)}"])


@task(
    dry=True,
    name="import",
    positional=["source"],
    help={
        "source": "A JobCfg file (.py), a task_runner file (.yaml), a ~/.cluster_config, a file "
        "with a command line; "
        "or a command line itself, behind `--`.",
        "output": "Where the job is written to (default: jobs/NAME).",
        "cfg_class": "The JobCfg class, where the file has several.",
        "workflow": "Isaac Lab's script that trains (default: that of the file's generation).",
        "rl_library": (
            "The library that the script of all libraries is told: rl_games, rsl_rl, skrl, sb3."
        ),
        "stopper": "A stopper class of the file.",
        "progress_reporter": "A progress reporter class of the file.",
        "num_samples": "Trainings in all, repeats counted, as Isaac Lab counts.",
        "repeat_run_count": "Repeats of each configuration.",
        "num_workers_per_node": "Trainings that share a node; 1: each has all of one.",
        "metric": "The scalar to tune for.",
        "mode": "max or min.",
        "python": "What runs Isaac Lab's scripts in the image.",
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
    """Write what Isaac Lab's Ray scripts run as a job, or as cluster files. Overwrites nothing."""
    given = {
        name: value for name, value in locals().items() if name not in ("call", "source", "output")
    }
    options = lazy.importing.Options(**given)
    found = lazy.importing.convert(Path(source) if source else None, words_behind_dashes(), options)

    if call.dry:
        lazy.importing.try_out(found)
        written = []
    else:
        written = [paths.shown(path) for path in found.write(Path(output) if output else None)]

    next = " ".join([found.next, *written[:1]]) if written else ""
    return Report(
        {"text": found.text, "written": written},
        [found.text.rstrip()],
        notes=found.notes,
        next=next,
    )


def listed(found: Sequence[RunStatus], here: Here) -> Report:
    """Show one row a run."""
    if not found:
        home = paths.shown(here.results)
        next = f"trainyard train.dispatch {paths.example_job(here.directory)}"
        return Report({"runs": []}, [f"there are no such runs in {home}"], next=next)

    columns = ["run", "state", "done", "cluster", "started", "took", "user"]
    columns += ["resumes"] if any(each.state.resumes for each in found) else []
    documents = [_short(each) for each in found]
    rows = []

    for each, document in zip(found, documents, strict=True):
        rows.append(_list_row(each, document)[: len(columns)])

    silent = {each.state.cluster: each.unsure for each in found if each.unsure and not each.broken}
    lines = [f"unknown, on cluster {cluster}: {why}" for cluster, why in silent.items()]
    for each in found:
        if each.broken:
            lines.append(f"broken: {each.unsure}")

    whole = [each for each in found if not each.broken]
    return Report(
        {"runs": documents},
        [Table(columns, rows, may_shorten=("cluster", "user")), *lines],
        next=f"trainyard train.status {whole[0].run.name}" if whole else "",
    )


def stopped(call: Call, found: RunDirectory) -> Report:
    """Stop a run and say so."""
    from trainyard.dispatch.follow import Screen

    if call.dry:
        return call.skipped(f"run {found.name}")

    had_ended = lazy.runs.has_ended(found)
    # It is not about what the run printed.
    now = lazy.runs.stop(found, call.here, screen=Screen(note=_remark))
    line = f"run {now.run.name} {now.state.state}"

    if had_ended:
        line = f"run {now.run.name} had already ended ({now.state.state})"

    if now.state.state == "stopped":
        next = now.state.resume_command
    else:
        next = ""

    return Report(now.document(), [line], next=next, error=None if now.state.ended else now.error)


def dispatched(
    call: Call,
    prepared: Prepared,
    cluster: Cluster,
    *,
    wait: bool,
    skip_smoke: bool,
    only: str | None = None,
) -> RunStatus | None:
    """Say what is sent and dispatch it; None with --dry. `only` is as in PrintedScreen."""
    from trainyard.dispatch.plan import described

    note("\n".join(described(prepared)))
    if call.dry:
        if prepared.tasks:
            note(f"tasks: {named([task.name for task in prepared.tasks], most=_NAMED)}")
        note("nothing was sent (--dry)")
        return None

    # The run is followed to its end, whoever reads what it prints.
    stream = Outlived(_stream(call))
    now, _ = lazy.runs.dispatch(
        cluster,
        prepared,
        results=call.here.results,
        command=sys.argv,
        wait=wait,
        skip_smoke=skip_smoke,
        progress=call.progress,
        screen=lazy.run_screen.PrintedScreen(stream, only=only),
    )

    return replace(now, error=now.error or stream.error(now.run.name))


def find(call: Call, run: str, *, to_stop: bool = False) -> RunDirectory:
    """Return the run; what messages say of its cluster is about the file that was recorded with
    it.
    """
    if to_stop:
        find = lazy.runs.run_to_stop
    else:
        find = lazy.runs.find_run
    found = find(run or None, call.here, call.file)
    command_hints.remember("train", {"file": str(found.cluster_file)})
    return found


def screen_for(call: Call, *, only: str | None = None) -> PrintedScreen:
    return lazy.run_screen.PrintedScreen(_stream(call), only=only)


def _stream(call: Call) -> TextIO:
    """Return where a run is shown as it goes: stdout, unless a document is to stand there."""
    return sys.stderr if call.json else sys.stdout


def _remark(text: str) -> None:
    note(f"-- {text}")


def ended(now: RunStatus) -> Report:
    """Show how a run that was followed ended, or that it goes on."""
    run, state = now.run, now.state
    if not state.ended:
        # With an error, whether it goes on is unknown; the error says what to do.
        goes_on = now.error is None
        notes = [f"run {run.name} is still active"] if goes_on else []
        next = f"trainyard train.logs {run.name}" if goes_on else ""
        return Report(now.document(), notes=notes, next=next, error=now.error)

    if run.report.exists():
        notes = [f"results: {paths.shown(run.path)}", f"report: {paths.shown(run.report)}"]
    else:
        notes = []

    body: list[str | Table] = [
        *tasks_table(state, now=time.time()),
        *last_lines(state),
        *lazy.account.lines(run, state),
        _summary(state),
    ]

    next = _next(now) if notes else ""
    return Report(now.document(), body, notes=notes, next=next, error=with_next(now.error, next))


def with_next(error: TrainyardError | None, next: str) -> TrainyardError | None:
    """Return an error with the next command, unless it says itself what to do."""
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
    """Return the next command: the logs of a run that is active or failed, and the report of one
    that succeeded.
    """
    succeeded = now.state.ended and now.state.exit == 0
    return f"trainyard train.{'watch' if succeeded else 'logs'} {now.run.name}"


def tasks_table(state: RunState, *, now: float) -> list[Table]:
    """Return a table with a row a task, of many tasks the bad ones; none where there are no
    tasks.
    """
    tasks = list(state.tasks.values())
    if len(tasks) > _ROWS:
        # Thousands of good rows would hide the bad ones.
        tasks = [task for task in tasks if task.state != "succeeded"][:_ROWS]
    columns = ["task", "state", "attempts", "node", "seconds", "exit", "reason"]
    if tasks:
        return [Table(columns, [_row(state, task, now=now) for task in tasks])]
    return []


def _row(state: RunState, task: Task, *, now: float) -> list[object]:
    last = task.last
    took = [state.seconds_of(attempt, now=now) for attempt in task.attempts]
    # Of all attempts: what the task cost.
    seconds = _seconds(sum(filter(None, took)) if any(each is not None for each in took) else None)
    return [
        task.name,
        task.state,
        len(task.attempts),
        last.node,
        seconds,
        last.exit_code,
        task.reason,
    ]


def last_lines(state: RunState, *, most: int = _TAILS) -> Iterator[str]:
    """Return what the first tasks that failed printed last."""
    for failed in [each for each in state.tasks.values() if each.state == "failed"][:most]:
        tail, why = failed.last.tail, failed.reason or "no reason known"
        # It printed nothing, or so many failed that their last lines are only in the logs.
        yield f"last lines of {failed.name} ({why}):" if tail else f"{failed.name} failed: {why}"
        for line in tail:
            yield f"    {lazy.run_screen.plain(line.encode('utf-8', 'surrogateescape'))}"


def _summary(state: RunState) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in state.counts.items() if count)
    took = _seconds(state.seconds, before=" in ", after=" s")
    if state.resumes:
        resumes = f" (resumes {state.resumes['run']})"
    else:
        resumes = ""
    return f"run {state.run}{resumes} {state.state}{took}" + (f": {counts}" if counts else "")


def _seconds(count: float | None, *, before: str = "", after: str = "") -> str:
    if count is None:
        return ""
    return f"{before}{count:.1f}{after}"


def _list_row(found: RunStatus, document: dict[str, Any]) -> list[object]:
    state, began = found.state, store.started(document)
    return [
        found.run.name,
        "unknown" if found.unsure and not found.broken else document["state"],
        f"{state.done}/{len(state.tasks)}",
        state.cluster,
        began and formats.age(time.time() - began),
        _seconds(state.seconds, after=" s"),
        document["user"],
        state.resumes and state.resumes["run"],
    ]


def _short(found: RunStatus) -> dict[str, Any]:
    state, record = found.state, store.described(found.run)
    about: dict[str, object] = {"state": "broken"} if found.broken else {}
    about |= {"unsure": found.unsure, "started": record.get("started"), "user": record.get("user")}
    return {**state.summary(), **about}
