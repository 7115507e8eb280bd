"""What a task finds around it: its directories, the job's files, its environment."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any

from trainyard_runner import names, tree

Order = dict[str, Any]


class Workspace:
    """The directories of one attempt, on the node where it runs."""

    def __init__(self, home: Path, order: Order) -> None:
        parent = home / "work"
        parent.mkdir(parents=True, exist_ok=True)
        prefix = f"{names.file_stem(order['task'])[:60]}.{order['attempt']}."
        self.root = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self.directory = self.root / "job"
        self.output = self.root / "output"
        self.checkpoint = self.root / "checkpoint"
        for directory in (self.directory, self.output, self.checkpoint):
            directory.mkdir()

    def link_files(self, package: Path | None, outputs: list[str]) -> None:
        """Put the job's files into the task's directory, as links; parents of declared outputs are real directories."""
        real = {PurePosixPath(output) for output in outputs}
        real |= {parent for output in real for parent in output.parents}
        if package is not None:
            _link(package, self.directory, real=real, below=PurePosixPath())
        for output in outputs:
            (self.directory / output).parent.mkdir(parents=True, exist_ok=True)

    def remove(self) -> None:
        """Remove everything, whatever the task made in it."""
        with contextlib.suppress(OSError):  # `cluster.down` tries again, and says what it is
            tree.remove(str(self.root))


def environment(order: Order, place: Workspace, *, inherited: dict[str, str], gpus: list[str]) -> dict[str, str]:
    """Return the environment of an attempt's command.

    The worker's own, without what belongs to another run (a worker may be one) and without the cluster's token.
    """
    kept = {name: value for name, value in inherited.items() if not name.startswith("TRAINYARD_")}
    kept.pop("RAY_AUTH_TOKEN", None)
    return {
        **kept,
        "OMP_NUM_THREADS": str(max(1, int(order["cpus"]))),
        "PYTHONUNBUFFERED": "1",
        **order["env"],
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        "PWD": str(place.directory),
        "TRAINYARD_OUTPUT": str(place.output),
        "TRAINYARD_CHECKPOINT": str(place.checkpoint),
        "TRAINYARD_RUN": order["run"],
        "TRAINYARD_TASK": order["task"],
        "TRAINYARD_ATTEMPT": str(order["attempt"]),
        "TRAINYARD_TASK_INDEX": str(order["index"]),
        "TRAINYARD_TASK_COUNT": str(order["count"]),
        "TRAINYARD_ATTEMPT_ID": attempt_id(order),
        "RAY_ADDRESS": order["ray_address"],
        **({"TRAINYARD_MASTER_ADDR": order["master"]} if order.get("master") else {}),
    }


def attempt_id(order: Order) -> str:
    """Return what no other attempt anywhere has."""
    return f"{order['run']}:{order['task']}:{order['attempt']}"


def _link(source: Path, target: Path, *, real: set[PurePosixPath], below: PurePosixPath) -> None:
    """Link what is in `source` into `target`; directories in `real` are made, and their content is linked.

    A file that is itself declared as an output is copied, so that the task does not write into the job's files.
    """
    with os.scandir(source) as items:
        for item in items:
            name = below / item.name
            if name not in real:
                (target / item.name).symlink_to(item.path)
            elif item.is_dir(follow_symlinks=False):
                (target / item.name).mkdir()
                _link(Path(item.path), target / item.name, real=real, below=name)
            else:
                shutil.copy2(item.path, target / item.name, follow_symlinks=False)
