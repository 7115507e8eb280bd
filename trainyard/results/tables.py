"""What the report shows besides curves, as its template takes it: tasks, failures, the timeline,
nodes, logs, media.

All of it is bounded: of each kind some are `shown`, and the others counted as `left_out`.
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

from trainyard.results import formats
from trainyard.results.curves import JobFile
from trainyard.results.state import ENDED, KINDS, Attempt, RunState, Task
from trainyard.results.store import RunDirectory
from trainyard.wording import clean

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
# Steps of seconds, minutes and hours that people count in.
_TICK_SECONDS = (
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0, 86_400.0),
)
_MOST_LOGS = 400
_MOST_OF_ONE_LOG = 200 * 1024
_MOST_OF_ALL_LOGS = 4 * 1024 * 1024


Row = dict[str, Any]


def tasks(run: RunDirectory, state: RunState, job: JobFile, finals: Mapping[str, float]) -> Row:
    """Return rows of the first tasks and of those that had trouble.

    A row has where the task's curve ended, its values of the matrix, and its attempts if there was
    more than one.
    """
    known = list(state.tasks.values())
    troubled = [
        task
        for task in known[_MOST_TASKS:]
        if len(task.attempts) > 1 or task.state in ("failed", "stopped")
    ]

    rows = []
    for task in [*known[:_MOST_TASKS], *troubled[:_MOST_TROUBLED]]:
        given = job.parameters.get(task.name, {})
        parameters = [given.get(key, "") for key in job.keys]
        rows.append(
            {**_task(run, state, task), "final": finals.get(task.name), "parameters": parameters}
        )

    return {"shown": rows, "left_out": len(known) - len(rows)}


def failures(run: RunDirectory, state: RunState, *, final: bool) -> Row:
    """Return what went wrong for good, or the attempts after which their task was tried again."""
    bad = []
    for attempt in state.attempts():
        if attempt.kind not in ("succeeded", "running", "stopped"):
            bad.append(attempt)

    last = set()
    for task in state.tasks.values():
        if task.attempts and task.state in ENDED:
            last.add(id(task.attempts[-1]))

    found = [attempt for attempt in bad if (id(attempt) in last) == final]
    shown = [_attempt(run, state, attempt) for attempt in found[:_MOST_FAILURES]]
    return {
        "shown": shown,
        "total": len(found),
        "reasons": Counter(map(_reason, found)).most_common(10),
    }


def machines(state: RunState) -> list[tuple[list[str], tuple[tuple[str, str], ...]]]:
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in sorted(state.nodes, key=formats.natural):
        found.setdefault(tuple(_machine(state.nodes[name])), []).append(name)
    return [(names, facts) for facts, names in list(found.items())[:_MOST_MACHINES]]


def checks(state: RunState) -> Row:
    """Return the smoke test's results, failed ones first."""
    found = [
        {**check, "state": "skipped" if check["skipped"] else "passed" if check["ok"] else "failed"}
        for check in sorted(state.checks, key=lambda check: bool(check["ok"] or check["skipped"]))
    ]
    return {"shown": found[:_MOST_CHECKS], "left_out": max(0, len(found) - _MOST_CHECKS)}


def timeline(state: RunState) -> Row:
    """Lay out the first attempts of a run as bars in lanes, one a node; places are in percent of
    the run's time.
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

    # The head first, then by name, with their numbers as numbers.
    nodes = sorted(by_node, key=lambda name: (name != "head", formats.natural(name)))
    lanes = [_lane(node, by_node[node], state, percent) for node in nodes]
    bars = [bar for lane in lanes for bar in lane["bars"]]
    step = next(
        (step for step in _TICK_SECONDS if step * _TICKS >= span),
        86_400 * math.ceil(span / 86_400 / _TICKS),
    )
    ticks = [step * number for number in range(math.floor(span / step) + 1)]

    return {
        "lanes": lanes,
        "ticks": [(percent(began + tick), _tick_label(tick)) for tick in ticks],
        "kinds": [kind for kind in KINDS if any(bar["kind"] == kind for bar in bars)],
        "left_out": len(attempts) - len(shown),
        "restores": any(bar["restored"] for bar in bars),
        "checkpoints": any(bar["checkpoint"] is not None for bar in bars),
    }


def media(run: RunDirectory, tasks: Iterable[str]) -> Row:
    """Return images and videos; of each task the last ones by name, as many as its share of the
    page.

    `source` is what the page shows, `link` leads to the file.
    """
    kinds = (*_IMAGES, *_VIDEOS)
    found: dict[str, list[str]] = {}
    for task in tasks:
        files = [
            name
            for name in tree.files(str(run.outputs(task)))
            if Path(name).suffix.lower() in kinds
        ]
        if files:
            found[task] = sorted(files, key=formats.natural)

    share = max(1, _MOST_MEDIA // max(len(found), 1))
    chosen = [(task, name) for task, files in found.items() for name in files[-share:]][
        :_MOST_MEDIA
    ]
    shown = []
    room = _ALL_INSIDE

    for task, name in chosen:
        path = run.outputs(task) / name
        link = quote(os.fsencode(path.relative_to(run.path)))
        inside = _inside(path, room)
        room -= len(inside or "")
        kind = "video" if path.suffix.lower() in _VIDEOS else "image"
        shown.append(
            {"task": task, "name": name, "kind": kind, "source": inside or link, "link": link}
        )

    return {"shown": shown, "left_out": sum(map(len, found.values())) - len(shown)}


def logs(run: RunDirectory, state: RunState) -> Row:
    """Return the end of each log, those of bad attempts first: an equal share of what there is room
    for.
    """
    attempts = sorted(
        state.attempts(), key=lambda attempt: attempt.kind in ("succeeded", "running")
    )
    found = [(attempt, run.log(attempt.task, attempt.number)) for attempt in attempts]
    found = [(attempt, path) for attempt, path in found if path.is_file() and path.stat().st_size]
    share = min(_MOST_OF_ONE_LOG, _MOST_OF_ALL_LOGS // max(min(len(found), _MOST_LOGS), 1))
    shown = []

    for attempt, path in found[:_MOST_LOGS]:
        is_only = len(state.tasks[attempt.task].attempts) == 1
        if is_only:
            name = attempt.task
        else:
            name = f"{attempt.task} · attempt {attempt.number}"
        shown.append({"name": clean(name), "kind": attempt.kind, **_tail(path, share)})

    return {"shown": shown, "left_out": len(found) - len(shown)}


def _task(run: RunDirectory, state: RunState, task: Task) -> Row:
    rows = [_attempt(run, state, attempt) for attempt in task.attempts or (task.last,)]
    last = rows[-1]
    before = sum(row["seconds"] for row in rows[:-1])
    measured = {}

    for name in ("cpu_seconds", "memory"):
        measured[name] = [row[name] for row in rows if row[name] is not None]

    return {
        **last,
        "state": task.state,
        "seconds": before + last["seconds"] if task.attempts else None,
        "cpu_seconds": sum(measured["cpu_seconds"]) if measured["cpu_seconds"] else None,
        "memory": max(measured["memory"], default=None),
        "restored": last["restored"] and len(rows) == 1,
        "began": last["began"] - before if last["began"] else None,
        "attempts": rows if len(rows) > 1 else (),
    }


def _attempt(run: RunDirectory, state: RunState, attempt: Attempt) -> Row:
    log = run.log(attempt.task, attempt.number)
    goes_on = attempt.outcome is None and attempt.seconds is None
    return {
        **vars(attempt),
        "state": attempt.kind,
        "node": _where(attempt),
        "seconds": state.seconds_of(attempt) or 0.0,
        "log": quote(f"logs/{log.name}") if log.exists() else None,
        "restored": attempt.continues is not None,
        "began": attempt.started if goes_on else None,  # so that the page counts its seconds on
        "reason": _reason(attempt),
        "tail": "\n".join(line.rstrip("\r\n") for line in attempt.tail),
    }


def _where(attempt: Attempt) -> str:
    if attempt.gpus:
        return f"{attempt.node or 'no node'}, GPU {attempt.gpus}"
    return attempt.node or ""


def _reason(attempt: Attempt) -> str:
    return attempt.reason or (
        attempt.kind if attempt.exit_code is None else f"exit code {attempt.exit_code}"
    )


def _machine(node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    cores = node.get("cores")
    memory = node.get("memory")
    gpus = Counter(node.get("gpus") or ())
    yield "CPU", f"{node.get('cpu') or 'unknown'}{f', {cores} cores' if cores else ''}"

    if memory:
        yield "Memory", formats.size(memory)

    if gpus:
        listed = ", ".join(f"{count} × {model}" for model, count in gpus.items())
        yield "GPUs", f"{listed}{f', driver {driver}' if (driver := node.get('driver')) else ''}"

    if node.get("system"):
        yield "System", str(node["system"])

    versions = {
        "Python": node.get("python"),
        "Ray": node.get("ray"),
        **(node.get("packages") or {}),
    }

    yield (
        "Versions",
        ", ".join(f"{name} {version}" for name, version in versions.items() if version),
    )


def _lane(
    node: str, attempts: Sequence[Attempt], state: RunState, percent: Callable[[float], float]
) -> Row:
    """Return a node's attempts as bars, each in the topmost row that is free when it starts."""
    free_at: list[float] = []
    bars = []
    for attempt in attempts:
        # Ends are worked out from rounded seconds: neighbours may seem to overlap by a few
        # milliseconds.
        row = next(
            (row for row, end in enumerate(free_at) if end <= attempt.started + 0.02), len(free_at)
        )
        free_at[row : row + 1] = [_end(state, attempt)]
        bars.append({**_bar(attempt, state, percent), "row": row})
    return {"node": node, "count": len(attempts), "rows": len(free_at), "bars": bars}


def _bar(attempt: Attempt, state: RunState, percent: Callable[[float], float]) -> Row:
    end = _end(state, attempt)
    saved = attempt.checkpoint_at
    width = min(max(percent(end) - percent(attempt.started), _NARROWEST), 100.0)
    return {
        "kind": attempt.kind,
        "title": "\n".join(_title(attempt, state)),
        "left": min(percent(attempt.started), 100.0 - width),
        "width": round(width, 3),
        "label": attempt.task,
        "restored": attempt.continues is not None,
        "checkpoint": percent(saved) if saved and attempt.started <= saved <= end + 5 else None,
    }


def _title(attempt: Attempt, state: RunState) -> Iterator[str]:
    took = formats.duration(state.seconds_of(attempt) or 0.0)
    yield f"{attempt.task}, attempt {attempt.number} on {_where(attempt) or 'no node'}"
    yield f"{attempt.kind} after {took}" if attempt.outcome else f"running for {took}"
    if attempt.reason:
        yield attempt.reason
    if attempt.continues is not None:
        yield f"continued from the last checkpoint of attempt {attempt.continues}"
    if attempt.checkpoint_at is not None:
        after = formats.duration(max(0.0, attempt.checkpoint_at - attempt.started))
        yield (
            f"{attempt.checkpoints} checkpoint{'s' * (attempt.checkpoints > 1)}, the last "
            f"after {after}"
        )


def _tick_label(seconds: float) -> str:
    """Return "0", "0.5 s", "30 s", "5 min", "2 h", "1 h 30 min", "3 d"."""
    if seconds < 60:
        return f"{round(seconds, 1):g} s" if seconds else "0"
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours and not hours % 24 and not minutes:
        return f"{hours // 24} d"
    parts = [f"{hours} h"] if hours else []
    return " ".join([*parts, *([f"{minutes} min"] if minutes else [])])


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
