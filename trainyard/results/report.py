"""results/RUN/report.html: one page about a run, which opens offline and loads nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from trainyard.results import curves, formats, story, tables, timeline
from trainyard.results.story import Story

_PAGE = Path(__file__).with_name("page")
_SCRIPTS = ("page.js", "curves.js")


def write_report(run_dir: Path) -> Path:
    """Write the report of a run from what is in its directory, whatever is missing there; return its path.

    Raises RequestError when the directory is no run's.
    """
    told = story.read(run_dir)
    page = _environment().get_template("page.html.j2").stream(_values(told))
    path = told.run.report
    part = path.with_name(f".{path.name}")
    with part.open("wb") as file:
        page.dump(file, encoding="utf-8", errors="replace")
    part.replace(path)
    return path


def _values(told: Story) -> dict[str, Any]:
    """Return all that the page shows."""
    state = told.state
    gathered = curves.gather(told.run, state.tasks)
    rows, rows_left_out = tables.tasks(told, final=gathered.final)
    checks, checks_left_out = tables.checks(told)
    script = "\n".join((_PAGE / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    return {
        "story": told,
        "state": state,
        "version": (told.record.get("versions") or {}).get("trainyard", ""),
        "smoke_skipped": bool(told.record.get("skip_smoke")),
        "unfinished": not state.ended,
        "figures": _figures(told),
        "facts": _facts(told.record),
        "failures": tables.failures(told),
        "curves": gathered,
        "drawing": gathered.drawing(),
        "rows": rows,
        "rows_left_out": rows_left_out,
        "timeline": timeline.build(told),
        "checks": checks,
        "checks_left_out": checks_left_out,
        "files": [(name, text) for name in ("job.yaml", "cluster.yaml") if (text := story.resolved(told, name))],
        "style": Markup((_PAGE / "page.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        "script": Markup(script),  # noqa: S704 - our own file
        "policy": _policy(script),
    }


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


def _policy(script: str) -> str:
    """Return a content security policy: nothing is loaded, and no script runs but ours, whatever a log contains."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PAGE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_cleaned,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        duration=formats.duration,
        size=formats.size,
        number=formats.number,
        utc=formats.utc,
        clock=formats.clock,
        thousands=lambda count: f"{count:,}",
    )
    return environment


def _cleaned(value: object) -> object:
    """Take out of everything that is put into the page what terminals and broken encodings leave in texts."""
    return formats.clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value
