"""Checkpoints on storage that outlives the head, if the cluster has any."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from trainyard_runner.wire import names


@dataclass(frozen=True)
class Kept:
    """The place of a run's checkpoints.

    `at`: the run's directory on the storage; None for the head's disk.
    `problem`: why the storage could not be used, or "".
    """

    at: str | None = None
    problem: str = ""


def place(run: Path, storage: str | None) -> Kept:
    """Link the checkpoints in a run's directory to a directory on `storage`.

    If that fails, checkpoints stay on the head's disk, and `problem` says why.
    """
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
    """Find a former task's checkpoint, on this head or else on `storage`."""
    archive = names.checkpoint_archive(task)
    places = [run / archive]
    if storage is not None:
        places.append(Path(storage) / run.name / Path(archive).name)
    for path in places:
        if path.is_file():
            return path
    return None


def share(source: Path, target: Path) -> None:
    """Hard-link a checkpoint archive to `target`, or copy it."""
    target.parent.mkdir(exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        # File systems over object storage have no hard links.
        part = target.with_name(f".{target.name}")
        shutil.copyfile(source, part)
        part.replace(target)
