"""The report's tables: tasks, failures, timeline, nodes, logs and media.

Each table is bounded: `shown` has its first rows, and `left_out` counts the
others.
"""

from __future__ import annotations

import base64
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trainyard_runner.wire import tree
from trainyard_runner.wire.events import NodeFound

from trainyard.results import formats
from trainyard.results.curves import JobFile
from trainyard.results.state import ENDED, KINDS, Attempt, RunState, Task
from trainyard.results.store import RunDirectory
from trainyard.wording import clean, counted

_MOST_TASKS = 300
_MOST_TROUBLED = 700
_MOST_FAILURES = 60
_MOST_CHECKS = 400
_MOST_MACHINES = 24
_MOST_MEDIA = 96
_LARGEST_INSIDE = 256 * 1024
_ALL_INSIDE = 4 * 1024 * 1024
_IMAGES = {
    ".png": "png",
    ".jpg": "jpeg",
    ".jpeg": "jpeg",
    ".gif": "gif",
    ".webp": "webp",
    ".svg": "svg+xml",
}
_VIDEOS = (".mp4", ".webm", ".ogv", ".m4v")
_MOST_BARS = 1200
_NARROWEST = 0.35  # percent: about 3 pixels of a wide page
_TICKS = 6
# Distances between marks of a time axis: round numbers of seconds, minutes and hours.
_TICK_SECONDS = (
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0, 86_400.0),
)
_MOST_LOGS = 400
_MOST_OF_ONE_LOG = 200 * 1024
_MOST_OF_ALL_LOGS = 4 * 1024 * 1024


Row = dict[str, Any]


def tasks(run: RunDirectory, state: RunState, job: JobFile, finals: Mapping[str, float]) -> Row:
    """Return rows of the first tasks, and of later ones with trouble.

    Trouble is a failure, a stop or a retry. A row has the last value of the
    task's curve, its values of the matrix, and its attempts if there were
    several.
    """
    known = list(state.tasks.values())
    troubled = []
    for task in known[_MOST_TASKS:]:
        if len(task.attempts) > 1 or task.state in ("failed", "stopped"):
            troubled.append(task)

    rows = []
    for task in [*known[:_MOST_TASKS], *troubled[:_MOST_TROUBLED]]:
        values = job.parameters.get(task.name, {})
        row = _task(run, state, task)
        row["final"] = finals.get(task.name)
        row["parameters"] = [values.get(key, "") for key in job.keys]
        rows.append(row)
    return {"shown": rows, "left_out": len(known) - len(rows)}


def failures(run: RunDirectory, state: RunState, *, final: bool) -> Row:
    """Return failed attempts that ended their task (`final`), or the others."""
    failed = []
    for task in state.tasks.values():
        for attempt in task.attempts:
            is_final = task.state in ENDED and attempt is task.attempts[-1]
            if attempt.kind not in ("succeeded", "running", "stopped") and is_final == final:
                failed.append(attempt)

    return {
        "shown": [_attempt(run, state, attempt) for attempt in failed[:_MOST_FAILURES]],
        "total": len(failed),
        "reasons": Counter(map(_reason, failed)).most_common(10),
    }


def machines(state: RunState) -> list[tuple[list[str], tuple[tuple[str, str], ...]]]:
    """Group nodes of equal hardware and versions, as (names, facts)."""
    names_by_facts: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in sorted(state.nodes, key=formats.natural):
        names_by_facts.setdefault(tuple(_machine(state.nodes[name])), []).append(name)
    return [(names, facts) for facts, names in list(names_by_facts.items())[:_MOST_MACHINES]]


def checks(state: RunState) -> Row:
    """Return the smoke test's results, failed ones first."""
    rows = []
    for check in sorted(state.checks, key=lambda check: check.ok or check.skipped):
        outcome = "failed"
        if check.skipped:
            outcome = "skipped"
        elif check.ok:
            outcome = "passed"
        rows.append({**check.fields(), "state": outcome})
    return {"shown": rows[:_MOST_CHECKS], "left_out": max(0, len(rows) - _MOST_CHECKS)}


def timeline(state: RunState) -> Row:
    """Return the earliest attempts as bars, in one lane for each node.

    Positions and widths are in percent of the run's time.
    """
    attempts = sorted(state.attempts(), key=lambda attempt: attempt.started)
    shown = attempts[:_MOST_BARS]
    if not shown:
        return {"lanes": ()}

    began = min(shown[0].started, state.started or shown[0].started)
    span = max(0.1, *(_end(state, attempt) - began for attempt in shown))

    def percent(moment: float) -> float:
        return round(min(max((moment - began) / span * 100, 0.0), 100.0), 3)

    by_node: dict[str, list[Attempt]] = {}
    for attempt in shown:
        by_node.setdefault(attempt.node or "not placed", []).append(attempt)

    # The head comes first, then nodes by name; numbers in names count as numbers.
    nodes = sorted(by_node, key=lambda name: (name != "head", formats.natural(name)))
    lanes = [_lane(node, by_node[node], state, percent) for node in nodes]
    bars: list[Row] = []
    for lane in lanes:
        bars += lane["bars"]
    kinds = {bar["kind"] for bar in bars}

    return {
        "lanes": lanes,
        "ticks": [(percent(began + tick), _tick_label(tick)) for tick in _ticks(span)],
        "kinds": [kind for kind in KINDS if kind in kinds],
        "left_out": len(attempts) - len(shown),
        "restores": any(bar["restored"] for bar in bars),
        "checkpoints": any(bar["checkpoint"] is not None for bar in bars),
    }


def _ticks(span: float) -> list[float]:
    """Return an axis' marks, in seconds from its beginning."""
    fitting = [step for step in _TICK_SECONDS if step * _TICKS >= span]
    days = math.ceil(span / 86_400 / _TICKS)
    step = min(fitting, default=86_400.0 * days)
    return [step * number for number in range(math.floor(span / step) + 1)]


def media(run: RunDirectory, tasks: Iterable[str]) -> Row:
    """Return the last images and videos of tasks, the same number of each task.

    `link` leads to the file. `source` is a small image's content, else the
    link.
    """
    kinds = (*_IMAGES, *_VIDEOS)
    names_of: dict[str, list[str]] = {}
    for task in tasks:
        files = tree.files(str(run.outputs(task)))
        names = [name for name in files if Path(name).suffix.lower() in kinds]
        if names:
            names_of[task] = sorted(names, key=formats.natural)

    share = max(1, _MOST_MEDIA // max(len(names_of), 1))
    chosen = []
    for task, names in names_of.items():
        chosen += [(task, name) for name in names[-share:]]

    shown = []
    room = _ALL_INSIDE
    for task, name in chosen[:_MOST_MEDIA]:
        path = run.outputs(task) / name
        link = quote(os.fsencode(path.relative_to(run.path)))
        inside = _inside(path, room)
        room -= len(inside or "")
        kind = "video" if path.suffix.lower() in _VIDEOS else "image"
        shown.append(
            {"task": task, "name": name, "kind": kind, "source": inside or link, "link": link}
        )

    return {"shown": shown, "left_out": sum(map(len, names_of.values())) - len(shown)}


def logs(run: RunDirectory, state: RunState) -> Row:
    """Return equally long ends of logs; failed attempts come first."""
    attempts = sorted(
        state.attempts(), key=lambda attempt: attempt.kind in ("succeeded", "running")
    )
    written = []
    for attempt in attempts:
        path = run.log(attempt.task, attempt.number)
        if path.is_file() and path.stat().st_size:
            written.append((attempt, path))

    share = min(_MOST_OF_ONE_LOG, _MOST_OF_ALL_LOGS // max(min(len(written), _MOST_LOGS), 1))
    shown = []
    for attempt, path in written[:_MOST_LOGS]:
        name = attempt.task
        if len(state.tasks[attempt.task].attempts) > 1:
            name += f" · attempt {attempt.number}"
        shown.append({"name": clean(name), "kind": attempt.kind, **_tail(path, share)})
    return {"shown": shown, "left_out": len(written) - len(shown)}


def _task(run: RunDirectory, state: RunState, task: Task) -> Row:
    rows = [_attempt(run, state, attempt) for attempt in task.attempts or (task.last,)]
    last = rows[-1]
    before = sum(row["seconds"] for row in rows[:-1])
    cpu = [row["cpu_seconds"] for row in rows if row["cpu_seconds"] is not None]
    memory = [row["memory"] for row in rows if row["memory"] is not None]
    return {
        **last,
        "state": task.state,
        "seconds": before + last["seconds"] if task.attempts else None,
        "cpu_seconds": sum(cpu) if cpu else None,
        "memory": max(memory, default=None),
        "restored": last["restored"] and len(rows) == 1,
        "began": last["began"] - before if last["began"] else None,
        "attempts": rows if len(rows) > 1 else (),
    }


def _attempt(run: RunDirectory, state: RunState, attempt: Attempt) -> Row:
    log = run.log(attempt.task, attempt.number)
    is_running = attempt.outcome is None and attempt.seconds is None
    return {
        **vars(attempt),
        "state": attempt.kind,
        "node": _where(attempt),
        "seconds": state.seconds_of(attempt) or 0.0,
        "log": quote(f"logs/{log.name}") if log.exists() else None,
        "restored": attempt.continues is not None,
        "began": attempt.started if is_running else None,  # the page counts seconds from here
        "reason": _reason(attempt),
        "tail": "\n".join(line.rstrip("\r\n") for line in attempt.tail),
    }


def _where(attempt: Attempt) -> str:
    if attempt.gpus:
        return f"{attempt.node or 'no node'}, GPU {attempt.gpus}"
    return attempt.node or ""


def _reason(attempt: Attempt) -> str:
    if attempt.reason:
        return attempt.reason
    if attempt.exit_code is not None:
        return f"exit code {attempt.exit_code}"
    return attempt.kind


def _machine(node: NodeFound) -> Iterator[tuple[str, str]]:
    cpu = node.cpu or "unknown"
    if node.cores:
        cpu += f", {node.cores} cores"
    yield "CPU", cpu

    if node.memory:
        yield "Memory", formats.size(node.memory)

    gpus = Counter(node.gpus)
    if gpus:
        listed = ", ".join(f"{count} × {model}" for model, count in gpus.items())
        if node.driver:
            listed += f", driver {node.driver}"
        yield "GPUs", listed

    if node.system:
        yield "System", node.system

    versions = {"Python": node.python, "Ray": node.ray, **(node.packages or {})}
    known = [f"{name} {version}" for name, version in versions.items() if version]
    yield "Versions", ", ".join(known)


def _lane(
    node: str, attempts: Sequence[Attempt], state: RunState, percent: Callable[[float], float]
) -> Row:
    """Return a node's attempts as bars, each in the topmost free row."""
    free_at: list[float] = []
    bars = []
    for attempt in attempts:
        # Ends are rounded: consecutive attempts may seem to overlap by a few milliseconds.
        row = 0
        while row < len(free_at) and free_at[row] > attempt.started + 0.02:
            row += 1
        free_at[row : row + 1] = [_end(state, attempt)]
        bars.append({**_bar(attempt, state, percent), "row": row})
    return {"node": node, "count": len(attempts), "rows": len(free_at), "bars": bars}


def _bar(attempt: Attempt, state: RunState, percent: Callable[[float], float]) -> Row:
    end = _end(state, attempt)
    checkpoint = None
    saved = attempt.checkpoint_at
    if saved and attempt.started <= saved <= end + 5:
        checkpoint = percent(saved)

    width = min(max(percent(end) - percent(attempt.started), _NARROWEST), 100.0)
    return {
        "kind": attempt.kind,
        "title": "\n".join(_title(attempt, state)),
        "left": min(percent(attempt.started), 100.0 - width),
        "width": round(width, 3),
        "label": attempt.task,
        "restored": attempt.continues is not None,
        "checkpoint": checkpoint,
    }


def _title(attempt: Attempt, state: RunState) -> Iterator[str]:
    took = formats.duration(state.seconds_of(attempt) or 0.0)
    yield f"{attempt.task}, attempt {attempt.number} on {_where(attempt) or 'no node'}"
    if attempt.outcome:
        yield f"{attempt.kind} after {took}"
    else:
        yield f"running for {took}"
    if attempt.reason:
        yield attempt.reason
    if attempt.continues is not None:
        yield f"continued from the last checkpoint of attempt {attempt.continues}"
    if attempt.checkpoint_at is not None:
        after = formats.duration(max(0.0, attempt.checkpoint_at - attempt.started))
        yield f"{counted(attempt.checkpoints, 'checkpoint')}, the last after {after}"


def _tick_label(seconds: float) -> str:
    """Return "0", "0.5 s", "30 s", "5 min", "2 h", "1 h 30 min", "3 d"."""
    if not seconds:
        return "0"
    if seconds < 60:
        return f"{round(seconds, 1):g} s"

    hours, minutes = divmod(round(seconds / 60), 60)
    if hours and not hours % 24 and not minutes:
        return f"{hours // 24} d"
    if not hours:
        return f"{minutes} min"
    if not minutes:
        return f"{hours} h"
    return f"{hours} h {minutes} min"


def _end(state: RunState, attempt: Attempt) -> float:
    return attempt.started + (state.seconds_of(attempt) or 0.0)


def _inside(path: Path, room: int) -> str | None:
    kind = _IMAGES.get(path.suffix.lower())
    if kind is None or path.stat().st_size > min(_LARGEST_INSIDE, room * 3 // 4):
        return None
    return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _tail(path: Path, most: int) -> dict[str, object]:
    with path.open("rb") as log:
        size = log.seek(0, 2)
        log.seek(max(0, size - most))
        content = log.read(most)
    if size > most:
        content = content.partition(b"\n")[2] or content
    text = clean(content.decode("utf-8", "replace"))
    return {"link": quote(f"logs/{path.name}"), "text": text, "left_out": size - len(content)}
