"""What a task finds around it: its directories, the job's files, its environment."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trainyard_runner.node import mlflow
from trainyard_runner.node.job_files import Identity, JobFiles
from trainyard_runner.wire import names, outputs, tree
from trainyard_runner.wire.archive import LeftOut
from trainyard_runner.wire.driver import Driver
from trainyard_runner.wire.unpack import unpack

Order = dict[str, Any]
# What a command's outputs and its checkpoint are in, and its own directory.
DIRECTORIES = ("checkpoint", "job", "output")


class Spare:
    """The directories of a quick attempt, for the next one on this worker.

    To make four directories, and to remove them, is a third of what a quick attempt costs a busy
    node.
    """

    def __init__(self) -> None:
        self._root: Path | None = None

    def take(self, prefix: str, parent: Path) -> Path | None:
        """Return the directories under a new name, as new ones are; None if there are none."""
        if self._root is None:
            return None
        root = self._root
        self._root = None
        return root.rename(parent / f"{prefix}{root.name.rpartition('.')[2]}")

    def keep(self, root: Path) -> None:
        self._root = root

    def close(self) -> None:
        """Remove them."""
        if self._root is not None:
            _remove(self._root)


class Workspace:
    """The directories of one attempt, on the node where it runs."""

    def __init__(self, home: Path, order: Order, spare: Spare | None = None) -> None:
        parent = home / "work"
        prefix = f"{names.file_stem(order['task'])[:60]}.{order['attempt']}."
        root = spare.take(prefix, parent) if spare else None
        if root is None:
            parent.mkdir(parents=True, exist_ok=True)
            root = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            for name in DIRECTORIES:
                (root / name).mkdir()

        self.root = root
        self.checkpoint = root / "checkpoint"
        self.directory = root / "job"
        self.output = root / "output"
        self._spare = spare
        self._as_made = self._looks() if spare else None

    def restore(self, order: Order, fetch: Callable[[list[Any]], Iterator[bytes]]) -> list[LeftOut]:
        """Put back what the attempt before left: its checkpoint, its outputs, the declared ones in
        their places.

        Returns what could not be put back.
        """
        if order["checkpoint"]:
            left_out = unpack(fetch(order["checkpoint"]), self.checkpoint)
        else:
            left_out = []

        for before in order["restored"]:
            left_out += outputs.apply(
                fetch(before["parts"]), self.output, removed=before["removed"]
            )

        # One that is below another one moves with that.
        for declared in sorted(order["outputs"]) if order["restored"] else ():
            if os.path.lexists(self.output / declared):
                (self.directory / declared).parent.mkdir(parents=True, exist_ok=True)
                (self.output / declared).rename(self.directory / declared)

        return left_out

    def copy_files(self, files: JobFiles | None, declared: list[str]) -> dict[str, Identity]:
        """Put copies of the job's files around what was restored; return how each is known again.

        The parents of declared outputs are there, whoever makes those, unless the attempt before
        left a file there.
        """
        if files is not None:
            copied = files.copy(self.directory)
        else:
            copied = {}
        for output in declared:
            with contextlib.suppress(FileExistsError, NotADirectoryError):
                (self.directory / output).parent.mkdir(parents=True, exist_ok=True)
        return copied

    def keep_token(self, token: str) -> Path:
        """Write the cluster's token where only the user of this node's Ray reads it; return the
        file.
        """
        file = self.root / "token"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(token)
        return file

    def remove(self) -> None:
        _remove(self.root)

    def hand_on(self) -> None:
        """Leave the directories to the next attempt, as new ones are; where they cannot be as new,
        remove them.
        """
        if self._spare is not None and self._is_renewed():
            self._spare.keep(self.root)
        else:
            self.remove()

    def _is_renewed(self) -> bool:
        """Empty the command's own directory; say whether all are as they were made."""
        try:
            if any(self.output.iterdir()) or any(self.checkpoint.iterdir()):
                return False
            if {path.name for path in self.root.iterdir()} != {*DIRECTORIES}:
                return False
            tree.empty(str(self.directory))
            return self._looks() == self._as_made
        except OSError:
            return False

    def _looks(self) -> list[tuple[int, ...]]:
        """Return what changes where something is done to a directory; the command's own gets the
        job's files.
        """
        found: list[tuple[int, ...]] = []
        for path in (self.root, self.directory, self.output, self.checkpoint):
            state = path.lstat()
            changed = 0 if path == self.directory else state.st_ctime_ns
            found.append((state.st_ino, state.st_mode, state.st_uid, state.st_gid, changed))
        return found


def environment(
    order: Order, place: Workspace, *, inherited: dict[str, str], gpus: list[str]
) -> dict[str, str]:
    """Return the environment of an attempt's command.

    The worker's own, without what belongs to another run (a worker may be one). The cluster's token
    is no variable of it: programs print theirs, and send them to trackers. Pods have it as nothing
    else, and a command that connects to Ray needs it: Ray reads it from a file.
    """
    kept = {name: value for name, value in inherited.items() if not name.startswith("TRAINYARD_")}
    token = kept.pop("RAY_AUTH_TOKEN", None)
    if token:
        kept["RAY_AUTH_TOKEN_PATH"] = str(place.keep_token(token))

    return {
        **kept,
        **_for_ray(order),
        **_defaults(order),
        **(
            {"PYTHONFAULTHANDLER": "1", **mlflow.context(attempt_id(order))}
            if order["watch"]
            else {}
        ),
        **order["env"],
        "PYTHONPATH": _python_path(place, order["env"].get("PYTHONPATH"), kept.get("PYTHONPATH")),
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


def _defaults(order: Order) -> dict[str, str]:
    """Return variables that a command gets where its runtime_env, which its worker has, sets no
    others.
    """
    found = {"OMP_NUM_THREADS": str(max(1, int(order["cpus"]))), "PYTHONUNBUFFERED": "1"}
    declared = order["ray_environment"].get("env_vars", {})
    return {name: value for name, value in found.items() if name not in declared}


def _for_ray(order: Order) -> dict[str, str]:
    """Return what makes a command that connects to Ray like one of `ray job submit --working-dir
    --runtime-env`.

    Ray reads it in `ray.init()`; its workers then have the job's files, packages and variables on
    every node. What the program says to `ray.init(runtime_env=...)` comes on top, key by key,
    instead of being refused.
    """
    environment = dict(order["ray_environment"])
    variables = {**environment.get("env_vars", {}), **order["env"]}
    if variables:
        environment["env_vars"] = variables
    driver = Driver(order["run"], order["task"], order["attempt"])
    config = {"runtime_env": environment, "metadata": driver.metadata()}
    return {"RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(config), "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1"}


def _python_path(place: Workspace, *further: str | None) -> str:
    """Return where Python looks first: the job's directory, as in what the command starts through
    Ray.
    """
    return os.pathsep.join([str(place.directory), *filter(None, further)])


def attempt_id(order: Order) -> str:
    """Return what no other attempt anywhere has."""
    return f"{order['run']}:{order['task']}:{order['attempt']}"


def _remove(root: Path) -> None:
    with contextlib.suppress(OSError):  # `cluster.down` tries again, and says what it is
        tree.remove(str(root))
