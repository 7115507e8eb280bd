"""Names of files and metrics that the operator, the head and nodes share."""

from __future__ import annotations

import hashlib
import re

_UNSAFE = re.compile(r"[^A-Za-z0-9._=,+-]")
_LONGEST = 100
# The subdirectory with the checkpoints, in a run's directory.
CHECKPOINTS = "checkpoints"
# A variable of the head: the directory that outlives the head, for runs' checkpoints.
STORAGE = "TRAINYARD_CHECKPOINT_STORAGE"


def file_stem(task: str) -> str:
    """Return a readable, unique file name for a task."""
    stem = _UNSAFE.sub("_", task)[:_LONGEST]
    # "." and ".." are other directories, and a leading dot hides a file.
    if stem == task and not stem.startswith(".") and stem:
        return stem
    digest = hashlib.sha256(task.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{stem.lstrip('.')}-{digest[:8]}"


def plain(metric: str) -> str:
    """Return a metric's name with "_" for special characters.

    Isaac Lab's tuner spells names in this way. Names that are equal after this
    are the same metric.
    """
    return re.sub(r"[^0-9A-Za-z_./]", "_", metric)


def segment(number: int) -> str:
    return f"stream.{number:06d}.jsonl"


def run_directory(run: str) -> str:
    """Return a run's directory, below Ray's logs on the head."""
    return f"trainyard/{run}"


def holdings(run: str) -> str:
    """Return an active run's file of holdings, below the head's Ray logs."""
    return f"trainyard/holdings/{run}.json"


def output_archive(task: str, number: int) -> str:
    """Return an archive of a task's outputs, below the run's directory."""
    return f"outputs/{file_stem(task)}.{number}.tar"


def checkpoint_archive(task: str) -> str:
    return f"{CHECKPOINTS}/{file_stem(task)}.tar"
