"""Pages such as results/RUN/report.html: a file that opens offline.

Large media are next to the file.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from trainyard_runner.wire.events import Metric

from trainyard.results import account, curves, formats, store, tables, trials
from trainyard.results import state as states
from trainyard.results.journal import recorded
from trainyard.results.scalars import Curve
from trainyard.results.state import RunState, TaskState
from trainyard.results.store import RunDirectory
from trainyard.wording import clean

_PAGE = Path(__file__).with_name("page")
_SCRIPTS = ("page.js", "chart.js", "curves.js", "sweep.js", "logs.js", "live.js")
# Characters of a resolved file: 10,000 tasks in one would make the page unusable.
_LONGEST_FILE = 200_000
# The order in which the report lists the states.
_TASK_STATES: tuple[TaskState, ...] = (
    "succeeded",
    "skipped",
    "running",
    "waiting",
    "failed",
    "stopped",
)


def write_report(run_dir: Path, *, watched: bool = False) -> Path:
    """Write a run's report; return its path.

    A `watched` page reloads itself every few seconds. Raises RequestError if
    the directory is not a run's.
    """
    run = RunDirectory(run_dir)
    state = states.fresh(run)
    metrics: dict[str, Curve] = {}
    for event in recorded(run):
        state.apply(event)
        if isinstance(event, Metric):
            curves.collect(event, metrics)
    write_page(run.report, "report.html.j2", _values(run, state, metrics) | {"watched": watched})
    return run.report


def write_page(path: Path, template: str, values: Mapping[str, Any]) -> None:
    """Write a page atomically; its CSP allows only Trainyard's own scripts."""
    script = "\n".join((_PAGE / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    media = "img-src 'self' data:; media-src 'self'"

    ours = {
        "style": Markup((_PAGE / "page.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        "script": Markup(script),  # noqa: S704 - our own file
        "policy": (
            f"default-src 'none'; style-src 'unsafe-inline'; {media}; script-src 'sha256-{digest}'"
        ),
    }
    page = _environment().get_template(template).stream({**values, **ours})
    # The name has the pid: another command may write the same page now.
    part = path.with_name(f".{os.getpid()}.html")
    with store.written(path):
        with part.open("wb") as file:
            page.dump(file, encoding="utf-8", errors="replace")
        part.replace(path)


def _values(run: RunDirectory, state: RunState, metrics: Mapping[str, Curve]) -> dict[str, Any]:
    """Return the page's values; `metrics` has the events' curves by task."""
    job = curves.job_file(run, list(state.tasks))
    drawn = job
    averaged: tuple[str, ...] = ()
    seen_first = None
    sweep = state.sweep
    if sweep and sweep.trials:
        job = trials.job_file(job, sweep)
        drawn = trials.drawn(job)
        averaged = ("repeat",)
        seen_first = trials.SEEN_FIRST

    series, left_out = curves.read(run, drawn, metrics=metrics)
    left_out += len(job.parameters) - len(drawn.parameters)
    gathered = curves.chosen(series, left_out, first=job.metric)
    finals = gathered.finals()
    if gathered.shown_first == job.metric:
        finals.update((task, curve.last) for task, curve in metrics.items())

    return {
        **_about(run, state),
        "curves": gathered,
        "drawing": _drawing(gathered, job, state, averaged=averaged, seen_first=seen_first),
        "sweep": trials.values(run, sweep, job) if sweep and sweep.trials else None,
        # A job without a matrix has only the key `task`, the name of each task.
        "keys": () if job.keys == ("task",) else job.keys,
        "rows": tables.tasks(run, state, job, finals),
    }


def _about(run: RunDirectory, state: RunState) -> dict[str, Any]:
    """Return the page's values that do not depend on curves."""
    record = run.record()
    return {
        "state": state,
        "version": (record.get("versions") or {}).get("trainyard", ""),
        "smoke_skipped": bool(record.get("skip_smoke")),
        "unfinished": not state.ended,
        "as_of": state.last_contact or (run.path / "run.json").stat().st_mtime,
        "figures": _figures(state),
        "facts": _facts(record, state, files=account.extent(run, state)),
        "started_by": "@".join(str(record[key]) for key in ("user", "host") if record.get(key)),
        "command": _command(record),
        "not_home": list(account.not_home(state)),
        "failed": tables.failures(run, state, final=True),
        "retried": tables.failures(run, state, final=False),
        "timeline": tables.timeline(state),
        "gallery": tables.media(run, state.tasks),
        "logs": tables.logs(run, state),
        "checks": tables.checks(state),
        "machines": tables.machines(state),
        "files": _files(run),
    }


def _files(run: RunDirectory) -> list[tuple[str, str]]:
    files = (run.job_file, run.cluster_file)
    return [(path.name, _beginning(path)) for path in files if path.is_file()]


def _drawing(
    gathered: curves.Curves,
    job: curves.JobFile,
    state: RunState,
    *,
    averaged: Sequence[str],
    seen_first: int | None,
) -> dict[str, Any]:
    """Return the data that the page draws.

    If the run resumes another, its curves begin with the former run's values,
    and `resumed` says when this run began.
    """
    drawing = gathered.drawing(job.keys, averaged=averaged)
    resumed = None
    if state.resumes and state.started:
        resumed = {"run": clean(state.resumes["run"]), "at": state.started - drawing["began"]}
    return {**drawing, "seen_first": seen_first, "resumed": resumed}


def _figures(state: RunState) -> list[tuple[str, str]]:
    """Return the numbers at the top of the page, with captions."""
    seconds = state.seconds
    if seconds is None:
        seconds = 0.0
        if state.last_contact and state.started:
            seconds = max(0.0, state.last_contact - state.started)
    figures = [(formats.duration(seconds), "duration" if state.ended else "so far")]

    if state.sweep:
        # Trials are counted, not tasks: a pruned trial's tasks are stopped, which is no failure.
        figures += _counts("trial", state.sweep.counts())
    else:
        figures += _counts("task", {word: state.counts[word] for word in _TASK_STATES})

    attempts = state.attempts()
    if len(attempts) > len(state.tasks):
        figures.append((f"{len(attempts):,}", "attempts"))

    cpu = [attempt.cpu_seconds for attempt in attempts if attempt.cpu_seconds is not None]
    if cpu:
        figures.append((formats.duration(sum(cpu)), "of CPU time"))

    memory = [attempt.memory for attempt in attempts if attempt.memory is not None]
    if memory:
        figures.append((formats.size(max(memory)), "peak memory of a task"))

    if state.exit:
        figures.append((str(state.exit), "exit code"))
    return figures


def _counts(noun: str, counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return (count, caption) of states that occur, and of `succeeded`."""
    figures = []
    for state, count in counts.items():
        if count or state == "succeeded":
            caption = f"{noun} {state}" if count == 1 else f"{noun}s {state}"
            figures.append((f"{count:,}", caption))
    return figures


def _command(record: Mapping[str, Any]) -> str:
    """Return the quoted command that dispatched the run; "" if unrecorded."""
    program, *words = map(str, record.get("command") or ("",))
    if program:
        return shlex.join([Path(program).name, *words])
    return ""


def _facts(record: Mapping[str, Any], state: RunState, *, files: str) -> list[tuple[str, str]]:
    simulated = ", GPUs simulated" if record.get("simulated_gpus") else ""
    cluster = record["cluster"]
    if cluster and record.get("backend"):
        cluster += f" ({record['backend']}{simulated})"
    elif cluster:
        cluster += simulated

    git = record.get("git") or {}
    revision = (git.get("revision") or "")[:12]
    if revision and git.get("dirty"):
        revision += ", with changes that were not committed"

    versions = []
    for name, value in (record.get("versions") or {}).items():
        if value and name != "runner_protocol":
            versions.append(f"{name} {value}")

    facts = {
        "Cluster": cluster,
        "Git revision": revision,
        "Image": record.get("image"),
        "Versions": ", ".join(versions),
        "Resumes": state.resumes["run"] if state.resumes else None,
        "Files": files,
    }
    return [(name, str(value)) for name, value in facts.items() if value]


def _beginning(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        text = file.read(_LONGEST_FILE + 1)
    if len(text) <= _LONGEST_FILE:
        return text
    return f"{text[:_LONGEST_FILE]}\n... the rest is in {path.name}\n"


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PAGE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_cleaned,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {
        "ensure_ascii": False,
        "separators": (",", ":"),
        "allow_nan": False,
    }
    environment.filters.update(
        duration=formats.duration,
        size=formats.size,
        number=formats.number,
        utc=formats.utc,
        thousands=lambda count: f"{count:,}",
    )
    return environment


def _cleaned(value: object) -> object:
    if isinstance(value, str) and not isinstance(value, Markup):
        return clean(value)
    return value
