"""What a task finds around it: its directories, the job's files, its environment."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trainyard_runner import mlflow, names, outputs, tree
from trainyard_runner.archive import LeftOut
from trainyard_runner.job_files import Identity, JobFiles
from trainyard_runner.unpack import unpack
from trainyard_runner.wire.driver import Driver

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

    def restore(self, order: Order, fetch: Callable[[list[Any]], Iterator[bytes]]) -> list[LeftOut]:
        """Put back what the attempt before left: its checkpoint, its outputs, the declared ones in their places.

        Returns what could not be put back.
        """
        left_out = unpack(fetch(order["checkpoint"]), self.checkpoint) if order["checkpoint"] else []
        for before in order["restored"]:
            left_out += outputs.apply(fetch(before["parts"]), self.output, removed=before["removed"])
        # One that is below another one moves with that.
        for declared in sorted(order["outputs"]) if order["restored"] else ():
            if os.path.lexists(self.output / declared):
                (self.directory / declared).parent.mkdir(parents=True, exist_ok=True)
                (self.output / declared).rename(self.directory / declared)
        return left_out

    def copy_files(self, files: JobFiles | None, declared: list[str]) -> dict[str, Identity]:
        """Put copies of the job's files around what was restored; return how each is known again.

        The parents of declared outputs are there, whoever makes those, unless the attempt before left a file there.
        """
        copied = files.copy(self.directory) if files is not None else {}
        for output in declared:
            with contextlib.suppress(FileExistsError, NotADirectoryError):
                (self.directory / output).parent.mkdir(parents=True, exist_ok=True)
        return copied

    def keep_token(self, token: str) -> Path:
        """Write the cluster's token where only the user of this node's Ray reads it; return the file."""
        file = self.root / "token"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(token)
        return file

    def remove(self) -> None:
        with contextlib.suppress(OSError):  # `cluster.down` tries again, and says what it is
            tree.remove(str(self.root))


def environment(order: Order, place: Workspace, *, inherited: dict[str, str], gpus: list[str]) -> dict[str, str]:
    """Return the environment of an attempt's command.

    The worker's own, without what belongs to another run (a worker may be one). The cluster's token is no
    variable of it: programs print theirs, and send them to trackers. Pods have it as nothing else, and
    a command that connects to Ray needs it: Ray reads it from a file.
    """
    kept = {name: value for name, value in inherited.items() if not name.startswith("TRAINYARD_")}
    token = kept.pop("RAY_AUTH_TOKEN", None)
    if token:
        kept["RAY_AUTH_TOKEN_PATH"] = str(place.keep_token(token))
    return {
        **kept,
        **_for_ray(order),
        **_defaults(order),
        **({"PYTHONFAULTHANDLER": "1", **mlflow.context(attempt_id(order))} if order["watch"] else {}),
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
    """Return variables that a command gets where its runtime_env, which its worker has, sets no others."""
    found = {"OMP_NUM_THREADS": str(max(1, int(order["cpus"]))), "PYTHONUNBUFFERED": "1"}
    declared = order["ray_environment"].get("env_vars", {})
    return {name: value for name, value in found.items() if name not in declared}


def _for_ray(order: Order) -> dict[str, str]:
    """Return what makes a command that connects to Ray like one of `ray job submit --working-dir --runtime-env`.

    Ray reads it in `ray.init()`; its workers then have the job's files, packages and variables on every node. What the
    program says to `ray.init(runtime_env=...)` comes on top, key by key, instead of being refused.
    """
    environment = dict(order["ray_environment"])
    variables = {**environment.get("env_vars", {}), **order["env"]}
    if variables:
        environment["env_vars"] = variables
    driver = Driver(order["run"], order["task"], order["attempt"])
    config = {"runtime_env": environment, "metadata": driver.metadata()}
    return {"RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(config), "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1"}


def _python_path(place: Workspace, *further: str | None) -> str:
    """Return where Python looks first: the job's directory, as in what the command starts through Ray."""
    return os.pathsep.join([str(place.directory), *filter(None, further)])


def attempt_id(order: Order) -> str:
    """Return what no other attempt anywhere has."""
    return f"{order['run']}:{order['task']}:{order['attempt']}"
