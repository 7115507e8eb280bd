"""Checkpoints on storage that outlives the head: where a cluster has some, its runs keep theirs
there.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from trainyard_runner.wire import names


@dataclass(frozen=True)
class Kept:
    """Where a run keeps its checkpoints, None for the head's disk; why not on the storage that
    there is.
    """

    at: str | None = None
    problem: str = ""


def place(run: Path, storage: str | None) -> Kept:
    """Let a run, whose directory is `run`, keep its checkpoints on `storage`, a directory."""
    if storage is None:
        return Kept()
    directory = Path(storage) / run.name
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (run / names.CHECKPOINTS).symlink_to(directory)
    except OSError as error:
        return Kept(problem=f"checkpoints are on the head's disk, not on the storage: {error}")
    return Kept(str(directory))


def find(run: Path, task: str, storage: str | None) -> Path | None:
    """Return a former run's checkpoint of a task: on this head, else on `storage`, where an earlier
    head left it.
    """
    archive = names.checkpoint_archive(task)
    places = [run / archive]
    if storage is not None:
        places.append(Path(storage) / run.name / Path(archive).name)
    for path in places:
        if path.is_file():
            return path
    return None


def share(source: Path, target: Path) -> None:
    """Give a checkpoint to another run, without a copy where the storage can: file systems over
    objects cannot.
    """
    target.parent.mkdir(exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        part = target.with_name(f".{target.name}")
        shutil.copyfile(source, part)
        part.replace(target)
