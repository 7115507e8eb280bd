"""Checkpoints at home: which come by themselves, which are too large, and which ended with the
head.
"""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from trainyard_runner.wire import archive, names, outputs
from trainyard_runner.wire.checkpoint import KeptCheckpoint

from trainyard.results import formats, store
from trainyard.results.state import ENDED, RunState, Task
from trainyard.results.store import RunDirectory
from trainyard.spec.job import JobSpec
from trainyard.wording import named

Which = Literal["all", "best", "none"]


def which(job: JobSpec) -> Which:
    """Return which checkpoints of a job's runs come home by themselves."""
    if job.checkpoints is None:
        return "best" if job.tune else "all"
    return "all" if job.checkpoints else "none"


def is_here(run: RunDirectory, task: Task) -> bool:
    """Say whether a task's last checkpoint is here, or there is none."""
    return (
        task.checkpoint is None
        or store.fetched(run.checkpoint(task.name)) == task.checkpoint["seq"]
    )


def size_of(task: Task) -> int:
    kept = KeptCheckpoint.of(task.checkpoint or {})
    if kept.archive_bytes is None:
        return kept.bytes
    return kept.archive_bytes


def archive_of(task: Task) -> dict[str, Any]:
    """Return what to fetch; the next checkpoint of a task that still runs replaces it: nothing is
    compared then.
    """
    kept = KeptCheckpoint.of(task.checkpoint or {})
    found: dict[str, Any] = {"file": names.checkpoint_archive(task.name)}
    if task.state in ENDED and kept.sha256 is not None:
        found |= {"bytes": kept.archive_bytes, "sha256": kept.sha256}
    return found


def elsewhere(run: RunDirectory, state: RunState) -> list[Task]:
    """Return the tasks whose last checkpoint is not here."""
    return [task for task in state.tasks.values() if not is_here(run, task)]


def due(run: RunDirectory, state: RunState, *, among: Iterable[Task] | None = None) -> list[Task]:
    """Return the tasks (of these) that have ended, and whose checkpoint should come home and has
    not.
    """
    wanted = _wanted(run, state, among)
    if not wanted:
        # The record names every task: it is read only where there is something to compare.
        return []
    limit = _limit(run)
    return [task for task in wanted if _fits(run, task, limit)]


def too_large(run: RunDirectory, state: RunState) -> str:
    """Say which checkpoints stay on the cluster because of the job's outputs_limit, and what
    fetches them.
    """
    limit = _limit(run)
    left = [task for task in _wanted(run, state) if not _fits(run, task, limit)]
    if not left:
        return ""
    reason = f"with its outputs each exceeds the job's outputs_limit of {outputs.sized(limit)}"
    fetch = f"to fetch what stays: trainyard train.fetch {run.name} --checkpoints"
    return f"checkpoints that stay on the cluster: {listed(left)}; {reason}; {fetch}"


def listed(tasks: Sequence[Task]) -> str:
    return named([f"{task.name} ({formats.size(size_of(task))})" for task in tasks])


def write_loss(run: RunDirectory, tasks: Sequence[Task], *, now: datetime.datetime) -> None:
    """Record that these checkpoints end with the head of their cluster, if its directory can be
    written to.
    """
    loss = {
        "at": now.isoformat(timespec="seconds"),
        "checkpoints": {task.name: size_of(task) for task in tasks},
    }
    with contextlib.suppress(OSError):
        run.left_behind.write_text(json.dumps(loss, indent=2) + "\n", encoding="utf-8")


def loss_of(run: RunDirectory) -> datetime.datetime | None:
    """Return when checkpoints of a run ended with the head; None if that is not known."""
    try:
        return datetime.datetime.fromisoformat(
            json.loads(run.left_behind.read_text(encoding="utf-8"))["at"]
        )
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _limit(run: RunDirectory) -> int:
    limit = store.described(run).get("outputs_limit")
    return limit if isinstance(limit, int) else 0


def _wanted(run: RunDirectory, state: RunState, among: Iterable[Task] | None = None) -> list[Task]:
    """Return the tasks that have ended, and whose checkpoint the job wants here and is not,
    whatever its size.
    """
    tasks = state.tasks.values() if among is None else among
    missing = [task for task in tasks if task.state in ENDED and not is_here(run, task)]
    which = None
    if missing:
        which = store.described(run).get("checkpoints")
    if which == "best":
        # While the sweep runs, another one may become the best.
        best = None
        if state.sweep and state.ended:
            best = state.sweep.best
        return [task for task in missing if best and task.name in best.tasks]
    return missing if which == "all" else []


def _fits(run: RunDirectory, task: Task, limit: int) -> bool:
    size = size_of(task)
    # The archives are at least what the task left: only where they are too large, its files are
    # looked at.
    if size + sum(each["bytes"] for each in task.archives) <= limit:
        return True
    if any(each["number"] > store.fetched(run.outputs(task.name)) for each in task.archives):
        return False  # as long as its outputs are not all here
    return size + outputs.data_bytes(archive.scan(str(run.outputs(task.name)))[0]) <= limit
