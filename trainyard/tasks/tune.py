"""The tasks tune.*: dispatch, show, stop and resume sweeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trainyard import paths
from trainyard.api import lazy
from trainyard.console.report import Report, Table
from trainyard.results import formats
from trainyard.tasks import train
from trainyard.tasks.command import FILE, Call, task
from trainyard.wording import counted

if TYPE_CHECKING:
    from trainyard.dispatch.runs import RunStatus
    from trainyard.results.sweep import Sweep, Trial

_BEST = 10
_FAILED = 5
_FLAGS = {
    **train.FLAGS,
    "set_": (
        "Set one value of the job file, PATH=VALUE such as tune.samples=80, or "
        "cluster.PATH=VALUE; repeatable."
    ),
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
    prepared, cluster = lazy.new_run.ready(
        job_dir,
        files,
        here=call.here,
        overrides=call.overrides,
        backend=call.backend,
        sweep=True,
    )
    # `only=""`: the output of a hundred trainings goes only to their logs.
    return train.send(
        call, prepared, cluster, ended=ended, wait=wait, skip_smoke=skip_smoke, only=""
    )


@task(
    "file",
    "set_",
    "backend",
    dry=True,
    positional=["run"],
    help={
        **_FLAGS,
        "run": train.HELP["run"],
        "file": "Cluster file of another cluster (default: the run's own cluster).",
    },
)
def resume(call: Call, run: str = "", wait: bool = True, skip_smoke: bool = False) -> Report | None:
    """Continue a stopped, killed or lost sweep as a new run; former trials still count."""
    found = lazy.runs.find_run(run or None, call.here)
    prepared, cluster = lazy.sweeps.ready_again(
        found,
        call.file,
        here=call.here,
        overrides=call.overrides,
        backend=call.backend,
    )
    return train.send(
        call, prepared, cluster, ended=ended, wait=wait, skip_smoke=skip_smoke, only=""
    )


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
    """Stop a sweep and wait until it has ended; `tune.resume` continues it."""
    found = train.find(call, run, to_stop=True)
    lazy.sweeps.about(found)
    return train.stopped(call, found)


def shown(now: RunStatus) -> Report:
    """Report a sweep: its best configurations, failed trials and state."""
    from trainyard.results.sweep import Sweep

    state = now.state
    run = now.run.name
    sweep = state.sweep or Sweep(lazy.sweeps.about(now.run))
    body = list(_trials(sweep))
    if not sweep.best:
        body += train.last_lines(state, most=1)
    if state.waiting:
        body.append(state.waiting.text)
    body += lazy.account.lines(now.run, state)

    counts = [f"{count} {name}" for name, count in sweep.counts().items() if count]
    reason = f" ({sweep.end['reason']})" if sweep.end else ""
    summary = f"sweep {run} {state.state}{reason}: {', '.join(counts) or 'no configuration yet'}"
    if now.unsure:
        summary += f"; unknown since then ({now.unsure})"
    body.append(summary)

    if not state.ended:
        next = "train.logs"
    elif state.exit == 0:
        next = "tune.report"
    elif sweep.end and state.state == "failed":
        # The sweep reached its end and failed: it would fail again if resumed.
        next = "train.logs"
    else:
        next = "tune.resume"
    return Report(now.document(), body, next=f"trainyard {next} {run}")


def ended(now: RunStatus) -> Report:
    """Report how a followed sweep ended, or that it is still active."""
    if now.state.ended and now.state.exit != 0:
        train.with_next(now.error, shown(now).next)
    report = train.ended(now)
    if not now.state.ended:
        return replace(report, next=f"trainyard tune.status {now.run.name}")
    sweep = shown(now)
    if now.state.exit == 0:
        # Not tune.report: following the sweep has just written its report.
        return replace(report, body=sweep.body, next=f"trainyard tune.status {now.run.name}")
    return replace(report, body=sweep.body, next=sweep.next)


def _trials(sweep: Sweep) -> Iterator[str | Table]:
    ranked = sweep.ranked()
    if ranked:
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
    complete = counted(len(ranked), "complete trial")
    if len(best) == len(ranked):
        return complete
    return f"the {len(best)} best of {complete}"


def _row(trial: Trial, names: list[str]) -> list[object]:
    value = "" if trial.value is None else formats.number(trial.value)
    spread = "" if trial.spread is None else f"± {formats.number(trial.spread)}"
    seconds = "" if trial.seconds is None else f"{trial.seconds:.1f}"
    params = []
    for name in names:
        params.append(formats.scalar(trial.params[name]) if name in trial.params else None)
    return [trial.number, value, spread, *params, seconds]
