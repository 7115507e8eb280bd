"""Decide which checkpoints are fetched; record those lost with the head."""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from trainyard_runner.wire import names, outputs
from trainyard_runner.wire.archive import scan

from trainyard.results import formats, store
from trainyard.results.state import ENDED, RunState, Task
from trainyard.results.store import RunDirectory
from trainyard.spec.job import JobSpec
from trainyard.wording import named


@dataclass(frozen=True)
class Archive:
    """An archive on the head.

    Without `bytes` and `sha256`, its download is not verified.
    """

    file: str
    bytes: int | None = None
    sha256: str | None = None


def which(job: JobSpec) -> Literal["all", "best", "none"]:
    """Say which checkpoints are fetched unasked.

    The default is all checkpoints; for a sweep, the best trial's.
    """
    if job.checkpoints is False:
        return "none"
    if job.checkpoints is None and job.tune:
        return "best"
    return "all"


def is_here(run: RunDirectory, task: Task) -> bool:
    """Say whether the last checkpoint, if any, is on this machine."""
    if task.checkpoint is None:
        return True
    return bool(store.fetched(run.checkpoint(task.name)) == task.checkpoint.seq)


def size_of(task: Task) -> int:
    kept = task.checkpoint
    if kept is None:
        return 0
    if kept.archive_bytes is None:
        return kept.bytes
    return kept.archive_bytes


def archive_of(task: Task) -> Archive:
    """Return the archive of a task's checkpoint.

    Only an ended task's archive has a size and a hash. A running task may
    replace its checkpoint at any time.
    """
    file = names.checkpoint_archive(task.name)
    kept = task.checkpoint
    if kept is None or task.state not in ENDED:
        return Archive(file)
    return Archive(file, kept.archive_bytes, kept.sha256)


def elsewhere(run: RunDirectory, state: RunState) -> list[Task]:
    return [task for task in state.tasks.values() if not is_here(run, task)]


def due(run: RunDirectory, state: RunState, *, among: Iterable[Task] | None = None) -> list[Task]:
    """Return the ended tasks whose checkpoint is still to be fetched.

    `among` limits the tasks. Checkpoints above the job's outputs_limit are left
    out.
    """
    wanted = _wanted(run, state, among)
    if not wanted:
        # `_limit` reads the record, which may name thousands of tasks.
        return []
    limit = _limit(run)
    return [task for task in wanted if _fits(run, task, limit)]


def too_large(run: RunDirectory, state: RunState) -> str:
    """Name the checkpoints above the job's outputs_limit, or return ""."""
    limit = _limit(run)
    left = [task for task in _wanted(run, state) if not _fits(run, task, limit)]
    if not left:
        return ""
    reason = (
        f"each, with its task's outputs, exceeds the job's outputs_limit of {outputs.sized(limit)}"
    )
    fetch = f"to fetch what stays: trainyard train.fetch {run.name} --checkpoints"
    return f"checkpoints that stay on the cluster: {listed(left)}; {reason}; {fetch}"


def listed(tasks: Sequence[Task]) -> str:
    return named([f"{task.name} ({formats.size(size_of(task))})" for task in tasks])


def write_loss(run: RunDirectory, tasks: Sequence[Task], *, now: datetime.datetime) -> None:
    """Record checkpoints lost with the head, if the directory is writable."""
    loss = {
        "at": now.isoformat(timespec="seconds"),
        "checkpoints": {task.name: size_of(task) for task in tasks},
    }
    with contextlib.suppress(OSError):
        run.left_behind.write_text(json.dumps(loss, indent=2) + "\n", encoding="utf-8")


def loss_of(run: RunDirectory) -> datetime.datetime | None:
    """Return the recorded time at which checkpoints were lost, or None."""
    try:
        loss = json.loads(run.left_behind.read_text(encoding="utf-8"))
        return datetime.datetime.fromisoformat(loss["at"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _limit(run: RunDirectory) -> int:
    limit = store.described(run).get("outputs_limit")
    return limit if isinstance(limit, int) else 0


def _wanted(run: RunDirectory, state: RunState, among: Iterable[Task] | None = None) -> list[Task]:
    """Return the ended tasks with a checkpoint to fetch, whatever its size."""
    tasks = state.tasks.values() if among is None else among
    missing = [task for task in tasks if task.state in ENDED and not is_here(run, task)]
    if not missing:
        return []

    which = store.described(run).get("checkpoints")
    if which == "all":
        return missing
    # The best trial is final only after the sweep.
    if which == "best" and state.sweep and state.ended and state.sweep.best:
        best = state.sweep.best
        return [task for task in missing if task.name in best.tasks]
    return []


def _fits(run: RunDirectory, task: Task, limit: int) -> bool:
    size = size_of(task)
    # Archives are at least as large as the outputs, so the files are measured only if necessary.
    if size + sum(archive.bytes for archive in task.archives) <= limit:
        return True

    if task.missing(run):
        return False  # outputs that are not fetched yet cannot be measured
    files, _ = scan(str(run.outputs(task.name)))
    return size + outputs.data_bytes(files) <= limit
