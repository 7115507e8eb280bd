"""The rows of the report: tasks with their attempts, failures, nodes, smoke checks. All bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from trainyard.results import formats
from trainyard.results.curves import JobFile
from trainyard.results.state import ENDED, Attempt, RunState, Task
from trainyard.results.store import RunDirectory

_MOST_TASKS = 300
_MOST_TROUBLED = 700
_MOST_FAILURES = 60
_MOST_CHECKS = 400
_MOST_MACHINES = 24


# What the page's template takes: a task as a whole, or one attempt of it.
Row = dict[str, Any]


def tasks(
    run: RunDirectory, state: RunState, job: JobFile, *, final: Callable[[str], float | None]
) -> tuple[list[Row], int]:
    """Return rows of the first tasks and of those that had trouble, and how many tasks are left out.

    A row has where the task's curve ended, its values of the matrix, and its attempts if there was more than one.
    """
    known = list(state.tasks.values())
    troubled = [task for task in known[_MOST_TASKS:] if len(task.attempts) > 1 or task.state in ("failed", "stopped")]
    rows = []
    for task in [*known[:_MOST_TASKS], *troubled[:_MOST_TROUBLED]]:
        given = job.parameters.get(task.name, {})
        parameters = [given.get(key, "") for key in job.keys]
        rows.append({**_task(run, state, task), "final": final(task.name), "parameters": parameters})
    return rows, len(known) - len(rows)


def failures(run: RunDirectory, state: RunState) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what went wrong for good, and the attempts after which their task was tried again."""
    final: list[Attempt] = []
    retried: list[Attempt] = []
    for attempt in state.attempts():
        if attempt.kind not in ("succeeded", "running", "stopped"):
            task = state.tasks[attempt.task]
            is_final = attempt is task.attempts[-1] and task.state in ENDED
            (final if is_final else retried).append(attempt)
    return _failures(run, state, final), _failures(run, state, retried)


def machines(state: RunState) -> list[tuple[list[str], tuple[tuple[str, str], ...]]]:
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in sorted(state.nodes, key=formats.natural):
        found.setdefault(tuple(_machine(state.nodes[name])), []).append(name)
    return [(names, facts) for facts, names in list(found.items())[:_MOST_MACHINES]]


def checks(state: RunState) -> tuple[list[dict[str, Any]], int]:
    """Return the smoke test's results, failed ones first, and how many are left out."""
    found = [
        {
            **{key: check.get(key) for key in ("name", "node", "detail", "hint", "seconds")},
            "state": "skipped" if check.get("skipped") else "passed" if check["ok"] else "failed",
        }
        for check in state.checks
    ]
    found.sort(key=lambda check: check["state"] != "failed")
    return found[:_MOST_CHECKS], max(0, len(found) - _MOST_CHECKS)


def where(attempt: Attempt) -> str:
    return f"{attempt.node or 'no node'}, GPU {attempt.gpus}" if attempt.gpus else attempt.node or ""


def seconds(state: RunState, attempt: Attempt) -> float:
    """Return how long an attempt took; of one that goes on, what is known so far."""
    known = state.last_contact or 0.0
    return max(0.0, known - attempt.started) if attempt.seconds is None else attempt.seconds


def _failures(run: RunDirectory, state: RunState, found: Sequence[Attempt]) -> dict[str, Any]:
    shown = [_attempt(run, state, attempt) for attempt in found[:_MOST_FAILURES]]
    return {"shown": shown, "total": len(found), "reasons": Counter(map(_reason, found)).most_common(10)}


def _task(run: RunDirectory, state: RunState, task: Task) -> Row:
    rows = [_attempt(run, state, attempt) for attempt in task.attempts or (task.last,)]
    last, before = rows[-1], sum(row["seconds"] for row in rows[:-1])
    measured = {name: [row[name] for row in rows if row[name] is not None] for name in ("cpu_seconds", "memory")}
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
        "node": where(attempt),
        "seconds": seconds(state, attempt),
        "log": quote(f"logs/{log.name}") if log.exists() else None,
        "restored": attempt.continues is not None,
        "began": attempt.started if goes_on else None,  # so that the page counts its seconds on
        "reason": _reason(attempt),
        "tail": "\n".join(line.rstrip("\r\n") for line in attempt.tail),
    }


def _reason(attempt: Attempt) -> str:
    return attempt.reason or (attempt.kind if attempt.exit_code is None else f"exit code {attempt.exit_code}")


def _machine(node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    cores, memory, gpus = node.get("cores"), node.get("memory"), Counter(node.get("gpus") or ())
    yield "CPU", f"{node.get('cpu') or 'unknown'}{f', {cores} cores' if cores else ''}"
    if memory:
        yield "Memory", formats.size(memory)
    if gpus:
        listed = ", ".join(f"{count} × {model}" for model, count in gpus.items())
        yield "GPUs", f"{listed}{f', driver {driver}' if (driver := node.get('driver')) else ''}"
    if node.get("system"):
        yield "System", str(node["system"])
    versions = {"Python": node.get("python"), "Ray": node.get("ray"), **(node.get("packages") or {})}
    yield "Versions", ", ".join(f"{name} {version}" for name, version in versions.items() if version)
