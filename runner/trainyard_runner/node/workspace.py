"""An attempt's directories on its node, and its command's environment."""

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
from trainyard_runner.wire.order import Order
from trainyard_runner.wire.unpack import unpack

# Directories for the checkpoint, the job's files (the command's working directory) and the outputs.
DIRECTORIES = ("checkpoint", "job", "output")


class Spare:
    """Keeps an ended attempt's directories for the next one of the Ray task.

    Making and removing four directories takes a third of a quick attempt's time
    on a busy node.
    """

    def __init__(self) -> None:
        self._root: Path | None = None

    def take(self, prefix: str, parent: Path) -> Path | None:
        """Rename the kept root for the next attempt, if there is one."""
        if self._root is None:
            return None
        root = self._root
        self._root = None
        return root.rename(parent / f"{prefix}{root.name.rpartition('.')[2]}")

    def keep(self, root: Path) -> None:
        self._root = root

    def close(self) -> None:
        if self._root is not None:
            _remove(self._root)


class Workspace:
    """The directories of one attempt."""

    def __init__(self, home: Path, order: Order, spare: Spare) -> None:
        parent = home / "work"
        prefix = f"{names.file_stem(order['task'])[:60]}.{order['attempt']}."
        root = spare.take(prefix, parent)
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
        self._as_made = self._state()

    def restore(self, order: Order, fetch: Callable[[list[Any]], Iterator[bytes]]) -> list[LeftOut]:
        """Restore the order's checkpoint and outputs; return files left out.

        Declared outputs are moved to their places in the command's directory.
        """
        left_out = []
        if order["checkpoint"]:
            left_out = unpack(fetch(order["checkpoint"]), self.checkpoint)

        if not order["restored"]:
            return left_out

        for restored in order["restored"]:
            parts = fetch(restored["parts"])
            left_out += outputs.apply(parts, self.output, removed=restored["removed"])

        # A declared directory is moved first, together with any declared output inside it.
        for declared in sorted(order["outputs"]):
            if os.path.lexists(self.output / declared):
                (self.directory / declared).parent.mkdir(parents=True, exist_ok=True)
                (self.output / declared).rename(self.directory / declared)
        return left_out

    def copy_files(self, files: JobFiles | None, declared: list[str]) -> dict[str, Identity]:
        """Copy the job's files; return their identities by name.

        Restored outputs are not overwritten. Also makes the parent directories
        of declared outputs, unless a file is in the way.
        """
        copied: dict[str, Identity] = {}
        if files is not None:
            copied = files.copy(self.directory)
        for output in declared:
            with contextlib.suppress(FileExistsError, NotADirectoryError):
                (self.directory / output).parent.mkdir(parents=True, exist_ok=True)
        return copied

    def keep_token(self, token: str) -> Path:
        """Write the cluster's token to a file that only this user can read."""
        file = self.root / "token"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(token)
        return file

    def remove(self) -> None:
        _remove(self.root)

    def hand_on(self) -> None:
        if self._is_renewed():
            self._spare.keep(self.root)
        else:
            self.remove()

    def _is_renewed(self) -> bool:
        """Return whether all directories are as good as new.

        Empties the command's directory for that.
        """
        try:
            if any(self.output.iterdir()) or any(self.checkpoint.iterdir()):
                return False
            if {path.name for path in self.root.iterdir()} != {*DIRECTORIES}:
                return False
            tree.empty(str(self.directory))
            return self._state() == self._as_made
        except OSError:
            return False

    def _state(self) -> list[tuple[int, ...]]:
        """Return the inode, mode, owner, group and ctime of each directory.

        The ctime of the command's directory counts as 0: copying the job's
        files changes it.
        """
        states: list[tuple[int, ...]] = []
        for path in (self.root, self.directory, self.output, self.checkpoint):
            state = path.lstat()
            changed = 0 if path == self.directory else state.st_ctime_ns
            states.append((state.st_ino, state.st_mode, state.st_uid, state.st_gid, changed))
        return states


def environment(
    order: Order, place: Workspace, *, inherited: dict[str, str], gpus: list[str]
) -> dict[str, str]:
    """Return the environment of an attempt's command.

    `inherited`: the worker's environment. Its variables TRAINYARD_... are
    dropped: another run may have set them. If it has the cluster's token, as in
    pods, the token moves to a file, which Ray reads when the command connects:
    programs print variables and send them to trackers.
    """
    kept = {name: value for name, value in inherited.items() if not name.startswith("TRAINYARD_")}
    token = kept.pop("RAY_AUTH_TOKEN", None)
    if token:
        kept["RAY_AUTH_TOKEN_PATH"] = str(place.keep_token(token))

    for_watch = {}
    if order["watch"]:
        for_watch = {"PYTHONFAULTHANDLER": "1", **mlflow.context(attempt_id(order))}
    for_gang = {}
    if order["master"]:
        for_gang = {"TRAINYARD_MASTER_ADDR": order["master"]}
    # The job's directory comes first, as for the command's own Ray tasks.
    python_path = [
        str(place.directory),
        order["env"].get("PYTHONPATH"),
        kept.get("PYTHONPATH"),
    ]

    return {
        **kept,
        **_for_ray(order),
        **_defaults(order),
        **for_watch,
        **order["env"],
        "PYTHONPATH": os.pathsep.join(filter(None, python_path)),
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
        **for_gang,
    }


def _defaults(order: Order) -> dict[str, str]:
    """Return variables that a command gets unless its runtime_env sets them."""
    defaults = {"OMP_NUM_THREADS": str(max(1, int(order["cpus"]))), "PYTHONUNBUFFERED": "1"}
    declared = order["ray_environment"].get("env_vars", {})
    return {name: value for name, value in defaults.items() if name not in declared}


def _for_ray(order: Order) -> dict[str, str]:
    """Return variables that give the command's driver the job's runtime_env.

    `ray.init()` reads them, as under `ray job submit --runtime-env`: the
    driver's workers have the job's files, packages and variables on every node.
    Ray merges the runtime_env of a program's own `ray.init(runtime_env=...)`
    key by key, instead of rejecting it.
    """
    environment = dict(order["ray_environment"])
    variables = {**environment.get("env_vars", {}), **order["env"]}
    if variables:
        environment["env_vars"] = variables
    driver = Driver(order["run"], order["task"], order["attempt"])
    config = {"runtime_env": environment, "metadata": driver.metadata()}
    return {"RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(config), "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1"}


def attempt_id(order: Order) -> str:
    """Return an attempt's id, unique over all runs."""
    return f"{order['run']}:{order['task']}:{order['attempt']}"


def _remove(root: Path) -> None:
    with contextlib.suppress(OSError):  # `cluster.down` tries again, and then shows an error
        tree.remove(str(root))
