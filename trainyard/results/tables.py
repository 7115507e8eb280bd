"""The rows of the report: tasks with their attempts, failures with their last lines, smoke checks. All bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from trainyard.results import formats, timeline
from trainyard.results.job_file import JobFile
from trainyard.results.state import ENDED, Attempt, Task
from trainyard.results.story import Key, Story, Use

_MOST_TASKS = 300
_MOST_TROUBLED = 700
_MOST_FAILURES = 60
_MOST_CHECKS = 400
_MOST_MACHINES = 24
_UNKNOWN = Use(None, None)


@dataclass(frozen=True)
class Row:
    """A task as a whole, or one attempt of it."""

    name: str
    state: str
    node: str
    seconds: float | None
    exit_code: int | None
    cpu_seconds: float | None
    memory: int | None
    log: str | None
    final: float | None = None
    restored: bool = False
    began: float | None = None  # so that its seconds can be counted on; None: it does not run


@dataclass(frozen=True)
class TaskRows:
    """A task with its values of the matrix, and its attempts if there was more than one."""

    whole: Row
    attempts: tuple[Row, ...]
    values: tuple[str, ...]


@dataclass(frozen=True)
class Failure:
    """An attempt that went wrong, with the last lines it printed."""

    task: str
    attempt: int
    node: str
    kind: str
    reason: str
    tail: str
    log: str | None


@dataclass(frozen=True)
class Failures:
    """The first failures in full, and all of them counted by reason."""

    shown: tuple[Failure, ...]
    total: int
    reasons: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Machines:
    """Nodes that are made of the same."""

    names: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Check:
    """One rung of the smoke test on one node, or on the cluster as a whole."""

    name: str
    node: str
    state: str  # passed, failed, skipped
    detail: str
    hint: str
    seconds: float | None


def tasks(story: Story, job: JobFile, *, final: Callable[[str], float | None]) -> tuple[list[TaskRows], int]:
    """Return rows of the first tasks and of those that had trouble, and how many tasks are left out."""
    rows: list[TaskRows] = []
    troubled = 0
    for index, task in enumerate(story.state.tasks.values()):
        in_trouble = len(task.attempts) > 1 or task.state in ("failed", "stopped")
        if index >= _MOST_TASKS:
            if not in_trouble or troubled >= _MOST_TROUBLED:
                continue
            troubled += 1
        rows.append(_task(story, task, job, final(task.name)))
    return rows, len(story.state.tasks) - len(rows)


def failures(story: Story) -> tuple[Failures, Failures]:
    """Return what went wrong for good, and the attempts after which their task was tried again."""
    final: list[tuple[Task, Attempt]] = []
    retried: list[tuple[Task, Attempt]] = []
    for task in story.state.tasks.values():
        for attempt in task.attempts:
            if timeline.kind(attempt) not in ("succeeded", "running", "stopped"):
                is_final = attempt is task.attempts[-1] and task.state in ENDED
                (final if is_final else retried).append((task, attempt))
    return _failures(story, final), _failures(story, retried)


def machines(story: Story) -> list[Machines]:
    """Return what the nodes are made of; equal ones together."""
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in sorted(story.nodes, key=formats.natural):
        found.setdefault(tuple(_machine(story.nodes[name])), []).append(name)
    return [Machines(tuple(names), facts) for facts, names in list(found.items())[:_MOST_MACHINES]]


def checks(story: Story) -> tuple[list[Check], int]:
    """Return the smoke test's results, failed ones first, and how many are left out."""
    found = [_check(event) for event in story.state.checks]
    found.sort(key=lambda check: check.state != "failed")
    return found[:_MOST_CHECKS], max(0, len(found) - _MOST_CHECKS)


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


def _failures(story: Story, found: Sequence[tuple[Task, Attempt]]) -> Failures:
    reasons = Counter(_reason(attempt) for _, attempt in found)
    shown = tuple(_failure(story, task, attempt) for task, attempt in found[:_MOST_FAILURES])
    return Failures(shown, len(found), tuple(reasons.most_common(10)))


def _task(story: Story, task: Task, job: JobFile, final: float | None) -> TaskRows:
    parts = tuple(_attempt(story, task, attempt) for attempt in task.attempts)
    last = parts[-1] if parts else None
    times = [part.seconds for part in parts if part.seconds is not None]
    cpu = [part.cpu_seconds for part in parts if part.cpu_seconds is not None]
    whole = Row(
        task.name,
        task.state,
        last.node if last else "",
        sum(times) if times else None,
        last.exit_code if last else None,
        sum(cpu) if cpu else None,
        max((part.memory for part in parts if part.memory is not None), default=None),
        last.log if last else None,
        final,
        last.restored if last and len(parts) == 1 else False,
        last.began - sum(times[:-1]) if last and last.began else None,
    )
    values = job.parameters.get(task.name, {})
    return TaskRows(whole, parts if len(parts) > 1 else (), tuple(values.get(key, "") for key in job.keys))


def _attempt(story: Story, task: Task, attempt: Attempt) -> Row:
    key: Key = (task.name, attempt.number)
    use = story.uses.get(key, _UNKNOWN)
    return Row(
        f"attempt {attempt.number}",
        timeline.kind(attempt),
        story.where(task.name, attempt),
        attempt.seconds if attempt.seconds is not None else story.ended_at(attempt) - attempt.started,
        attempt.exit_code,
        use.cpu_seconds,
        use.memory,
        _log(story, task, attempt),
        restored=key in story.restored,
        began=attempt.started if attempt.outcome is None and attempt.seconds is None else None,
    )


def _failure(story: Story, task: Task, attempt: Attempt) -> Failure:
    return Failure(
        task.name,
        attempt.number,
        story.where(task.name, attempt),
        timeline.kind(attempt),
        _reason(attempt),
        "\n".join(line.rstrip("\r\n") for line in attempt.tail),
        _log(story, task, attempt),
    )


def _reason(attempt: Attempt) -> str:
    kind = timeline.kind(attempt)
    return attempt.reason or (kind if attempt.exit_code is None else f"exit code {attempt.exit_code}")


def _log(story: Story, task: Task, attempt: Attempt) -> str | None:
    """Return where an attempt's log is, as a link from the report."""
    path = story.run.log(task.name, attempt.number)
    return quote(f"logs/{path.name}") if path.exists() else None


def _check(event: Mapping[str, Any]) -> Check:
    state = "skipped" if event.get("skipped") else "passed" if event.get("ok") else "failed"
    return Check(
        str(event.get("name", "")),
        str(event.get("node") or ""),
        state,
        str(event.get("detail") or ""),
        str(event.get("hint") or ""),
        event.get("seconds"),
    )
