"""results/RUN/report.html: one page about a run, which opens offline and loads nothing but large media beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainyard.results import curves, formats, job_file, log_tails, media, rendering, story, tables, timeline
from trainyard.results.job_file import JobFile
from trainyard.results.story import Story


def write_report(run_dir: Path, *, watched: bool = False) -> Path:
    """Write the report of a run from what is in its directory, whatever is missing there; return its path.

    A page that is `watched` loads itself again every few seconds. Raises RequestError when the directory is no run's.
    """
    told = story.read(run_dir)
    rendering.write_page(told.run.report, "report.html.j2", _values(told) | {"watched": watched})
    return told.run.report


def _values(told: Story) -> dict[str, Any]:
    """Return all that the page shows."""
    state = told.state
    job = job_file.read(told.run, list(state.tasks))
    gathered = curves.chosen(*curves.read(told.run, state.tasks, job))
    rows, rows_left_out = tables.tasks(told, job, final=gathered.final)
    checks, checks_left_out = tables.checks(told)
    failed, retried = tables.failures(told)
    return {
        "story": told,
        "state": state,
        "version": told.version,
        "smoke_skipped": bool(told.record.get("skip_smoke")),
        "unfinished": not state.ended,
        "figures": _figures(told),
        "facts": _facts(told.record),
        "failed": failed,
        "retried": retried,
        "curves": gathered,
        "drawing": gathered.drawing(job.keys),
        "keys": _columns(job),
        "rows": rows,
        "rows_left_out": rows_left_out,
        "timeline": timeline.build(told),
        "gallery": media.gather(told.run, state.tasks),
        "logs": log_tails.gather(told),
        "checks": checks,
        "checks_left_out": checks_left_out,
        "machines": tables.machines(told),
        "files": [(name, text) for name in ("job.yaml", "cluster.yaml") if (text := story.resolved(told, name))],
    }


def _columns(job: JobFile) -> tuple[str, ...]:
    """Return the keys of the matrix; a job without one has only the name of each task."""
    return () if job.keys == ("task",) else job.keys


def _figures(told: Story) -> list[tuple[str, str]]:
    """Return the numbers that are read first."""
    state = told.state
    known = (
        state.seconds if state.seconds is not None else max(0.0, told.last_event - (state.started or told.last_event))
    )
    figures = [(formats.duration(known), "so far" if not state.ended else "in all")]
    for word in ("succeeded", "running", "waiting", "failed", "stopped"):
        count = state.counts[word]
        if count or word == "succeeded":
            figures.append((f"{count:,}", f"task{'' if count == 1 else 's'} {word}"))
    attempts = sum(len(task.attempts) for task in state.tasks.values())
    if attempts > len(state.tasks):
        figures.append((f"{attempts:,}", "attempts"))
    cpu = [use.cpu_seconds for use in told.uses.values() if use.cpu_seconds is not None]
    if cpu:
        figures.append((formats.duration(sum(cpu)), "of CPU time"))
    memory = [use.memory for use in told.uses.values() if use.memory is not None]
    if memory:
        figures.append((formats.size(max(memory)), "at most in one task"))
    if state.exit:
        figures.append((str(state.exit), "exit code"))
    return figures


def _facts(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return where the run came from, by run.json; what is not recorded there is not shown."""
    versions = record.get("versions") or {}
    backend = record.get("backend")
    cluster = record.get("cluster")
    simulated = ", GPUs simulated" if record.get("simulated_gpus") else ""
    facts = {
        "Cluster": cluster and f"{cluster}{f' ({backend}{simulated})' if backend else simulated}",
        "Git revision": _revision(record.get("git")),
        "Image": record.get("image"),
        "Versions": ", ".join(
            f"{name} {value}" for name, value in versions.items() if name != "runner_protocol" and value
        ),
        "Started by": "@".join(str(record[key]) for key in ("user", "host") if record.get(key)),
        "Command": " ".join(map(str, record.get("command") or ())),
    }
    return [(name, str(value)) for name, value in facts.items() if value]


def _revision(git: Mapping[str, Any] | None) -> str | None:
    if not git or not git.get("revision"):
        return None
    return f"{git['revision'][:12]}{', with changes that were not committed' if git.get('dirty') else ''}"
