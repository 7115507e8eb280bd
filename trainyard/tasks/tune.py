"""Search for a job's best configuration: dispatch, look, stop, go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trainyard import paths
from trainyard.console.report import Report, Table
from trainyard.results import formats
from trainyard.tasks import lazy, train
from trainyard.tasks.command import FILE, Call, task

if TYPE_CHECKING:
    from trainyard.dispatch.runs import RunStatus
    from trainyard.results.sweep import Sweep, Trial

_BEST = 10
_FAILED = 5
_SET = (
    "Set one value of the job file, PATH=VALUE such as tune.samples=80, or "
    "cluster.PATH=VALUE; repeatable."
)
_FLAGS = {
    "set_": _SET,
    "wait": "With --no-wait: leave as soon as the run has begun.",
    "skip_smoke": "Start without the smoke gate.",
}


@task(
    "file",
    "set_",
    "backend",
    dry=True,
    positional=["job_dir"],
    help={
        **_FLAGS,
        "job_dir": "Directory that holds job.yaml with `tune:`, or a bare name of jobs/.",
        "file": FILE,
    },
)
def dispatch(
    call: Call, job_dir: str, wait: bool = True, skip_smoke: bool = False
) -> Report | None:
    """Search for a job's best configuration; the sweep continues without this machine."""
    files = [call.file] if call.file else []
    ready = lazy.runs.ready(
        job_dir,
        files,
        here=call.here,
        overrides=call.overrides,
        backend=call.backend,
        sweep=True,
    )
    # What each of a hundred trainings prints is in their logs.
    now = train.dispatched(call, *ready, wait=wait, skip_smoke=skip_smoke, only="")
    return ended(now) if now else None


@task(
    "file",
    "set_",
    "backend",
    dry=True,
    positional=["run"],
    help={
        **_FLAGS,
        "run": train.HELP["run"],
        "file": "Another cluster than that of the run, by its file.",
    },
)
def resume(call: Call, run: str = "", wait: bool = True, skip_smoke: bool = False) -> Report | None:
    """Continue a sweep that was stopped, killed or lost, as a new run; each trial counts once."""
    found = lazy.runs.find_run(run or None, call.here)
    ready = lazy.sweeps.ready_again(
        found,
        call.file,
        here=call.here,
        overrides=call.overrides,
        backend=call.backend,
    )
    now = train.dispatched(call, *ready, wait=wait, skip_smoke=skip_smoke, only="")
    return ended(now) if now else None


@task("file", dry=True, positional=["run"], help=train.HELP)
def status(call: Call, run: str = "") -> Report:
    """Show a sweep's state: the best configurations so far, and how many were tried."""
    return shown(lazy.runs.status(train.find(call, run), call.here))


@task("file", positional=["run"], help=train.HELP)
def report(call: Call, run: str = "") -> Report:
    """Rewrite a sweep's report (one self-contained HTML page)."""
    path = lazy.runs.report(train.find(call, run), call.here, screen=train.screen_for(call))
    return Report({"report": str(path)}, [f"report: {paths.shown(path)}"])


@task("file", dry=True, positional=["run"], help=train.HELP)
def stop(call: Call, run: str = "") -> Report:
    """Stop a sweep, and wait until it has ended; `tune.resume` continues it."""
    found = train.find(call, run, to_stop=True)
    lazy.sweeps.about(found)
    return train.stopped(call, found)


def shown(now: RunStatus) -> Report:
    """Show the best configurations so far, why others failed, and how the sweep stands or ended."""
    from trainyard.results.sweep import Sweep

    state, run = now.state, now.run.name
    sweep = state.sweep or Sweep(lazy.sweeps.about(now.run))
    body = list(_trials(sweep))

    if not sweep.best:
        body += train.last_lines(state, most=1)

    if state.waiting:
        body.append(state.waiting["text"])

    body += lazy.account.lines(now.run, state)
    counts = ", ".join(f"{count} {name}" for name, count in sweep.counts().items() if count)
    why = f" ({sweep.end['reason']})" if sweep.end else ""

    if now.unsure:
        unsure = f"; unknown since then ({now.unsure})"
    else:
        unsure = ""

    body.append(f"sweep {run} {state.state}{why}: {counts or 'no configuration yet'}{unsure}")
    if state.ended and state.exit == 0:
        return Report(now.document(), body, next=f"trainyard tune.report {run}")

    # One that came to its end and failed would fail again.
    goes_on = state.ended and not (sweep.end and state.state == "failed")
    return Report(
        now.document(), body, next=f"trainyard {'tune.resume' if goes_on else 'train.logs'} {run}"
    )


def ended(now: RunStatus) -> Report:
    """Show how a sweep that was followed ended, or that it goes on."""
    if now.state.ended and now.state.exit != 0:
        train.with_next(now.error, shown(now).next)
    report = train.ended(now)
    if not now.state.ended:
        return replace(report, next=f"trainyard tune.status {now.run.name}")
    sweep = shown(now)
    if now.state.exit == 0:
        # Its report was written a moment ago.
        return replace(report, body=sweep.body, next=f"trainyard tune.status {now.run.name}")
    return replace(report, body=sweep.body, next=sweep.next)


def _trials(sweep: Sweep) -> Iterator[str | Table]:
    """Show the best trials, and why others failed."""
    if ranked := sweep.ranked():
        best = ranked[:_BEST]
        names = list(dict.fromkeys(name for trial in best for name in trial.params))
        columns = ["trial", sweep.tune["metric"], "spread", *names, "seconds"]
        yield Table(columns, [_row(trial, names) for trial in best], title=_title(best, ranked))
    failed = [trial for trial in sweep.trials.values() if trial.state == "failed"]
    for trial in failed[:_FAILED]:
        yield f"trial {trial.number} failed: {trial.reason or 'no reason known'}"
    if len(failed) > _FAILED:
        yield f"... and {len(failed) - _FAILED} more trials failed"


def _title(best: Sequence[Trial], ranked: Sequence[Trial]) -> str:
    complete = f"{len(ranked)} complete trial{'s' * (len(ranked) != 1)}"
    if len(best) == len(ranked):
        return complete
    return f"the {len(best)} best of {complete}"


def _row(trial: Trial, names: list[str]) -> list[object]:
    if trial.spread is None:
        spread = ""
    else:
        spread = f"± {formats.number(trial.spread)}"

    if trial.value is None:
        value = ""
    else:
        value = formats.number(trial.value)

    if trial.seconds is None:
        seconds = ""
    else:
        seconds = f"{trial.seconds:.1f}"

    params = [
        formats.scalar(trial.params[name]) if name in trial.params else None for name in names
    ]
    return [trial.number, value, spread, *params, seconds]
