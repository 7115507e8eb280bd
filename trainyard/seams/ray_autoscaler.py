"""`ray up` as a child process, with a log file, whose stages are followed."""

from __future__ import annotations

import atexit
import fcntl
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from trainyard import versions
from trainyard.errors import NotReadyError, PrerequisiteError, Problem
from trainyard.seams import programs
from trainyard.wording import ESCAPES

# `[4/7] Running initialization commands`, or `[2-6/7] Configuration already up to date`
# (ray/autoscaler, updater.py).
_STAGE = re.compile(r"\[(?P<first>\d)(?:-(?P<last>\d))?/7\] ")
TAIL_LINES = 200
# `ray` with shorter pauses. Ray waits 1 s before it writes a node's status, to write several at
# once, and 5 s between two attempts of SSH (aws/node_provider.py, updater.py).
_RAY = """
from ray.autoscaler._private import updater
from ray.autoscaler._private.aws import node_provider
from ray.scripts import scripts
node_provider.TAG_BATCH_DELAY, updater.READY_CHECK_INTERVAL = 0, 1
scripts.main()
"""


def refused(document: Mapping[str, Any]) -> tuple[Problem, ...]:
    """Return the problems of a cluster file for `ray up`, by Ray's schema.

    `ray up` would print hundreds of lines about them. Raises PrerequisiteError
    without Ray.
    """
    schema = json.loads((_ray() / "autoscaler" / "ray-schema.json").read_text())
    # Ray depends on jsonschema, so it is installed.
    from jsonschema import Draft7Validator

    problems = []
    for error in Draft7Validator(schema).iter_errors(document):
        problems.append(Problem(".".join(map(str, error.absolute_path)), error.message))
    return tuple(problems)


class RayUp:
    """One run of `ray up`, which ends with this process, unless that is killed.

    `stage` is Ray's number of the current stage, 0 before the first. `code` is
    the exit code, None while `ray up` runs. `tail` has the last lines of
    output; the file `log` has all. `of_stage` has the last lines of the current
    stage, because earlier messages are stale. Raises NotReadyError while
    another `ray up` with this log runs.
    """

    def __init__(self, file: Path, log: Path, environ: Mapping[str, str], *, restart: bool) -> None:
        self.stage = 0
        self.code: int | None = None
        self.tail: list[str] = []
        self.of_stage: list[str] = []
        self._log = _only(log)
        _ray()
        # Ray's cache of configurations does not distinguish accounts. A private directory has no
        # other account's, and no stale one.
        self._directory = tempfile.TemporaryDirectory(prefix="trainyard-ray-")
        command = [sys.executable, "-c", _RAY, "up", str(file), "--yes", "--no-config-cache"]
        command += ["--log-style=record", "--log-color=false"]
        if not restart:
            command.append("--no-restart")

        self._process = subprocess.Popen(
            command,
            env=_environment(environ, self._directory.name),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[self._log.fileno()],
        )
        self._log.write(f"process {self._process.pid}\n")
        self._log.flush()
        atexit.register(self.end)
        threading.Thread(target=self._read, name="ray up", daemon=True).start()

    def end(self) -> None:
        """Interrupt `ray up`, then kill it; its objects on AWS stay."""
        programs.end(self._process)
        self._directory.cleanup()

    def _read(self) -> None:
        with self._log as log:
            for raw in self._process.stdout or ():
                line = ESCAPES.sub("", raw.decode(errors="replace")).rstrip()
                log.write(f"{line}\n")
                log.flush()

                stage = _STAGE.search(line)
                if stage:
                    self.stage = int(stage["last"] or stage["first"])
                    self.of_stage = []

                if line:
                    self.tail = [*self.tail[-TAIL_LINES:], line]
                    self.of_stage = [*self.of_stage[-TAIL_LINES:], line]
        self.code = self._process.wait()


def _only(path: Path) -> TextIO:
    """Return the log, emptied and locked.

    The lock lasts until all processes that have the log open have ended. Raises
    NotReadyError if another process holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    log = path.open("a+")
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        log.seek(0)
        process = log.readline().strip()
        raise NotReadyError(
            "the `ray up` of an earlier, killed command is still running",
            where=process,
            hint=f"Wait until it ends, or end it: {process.replace('process', 'kill')}; then "
            "repeat the same command.",
        ) from error

    log.truncate(0)
    return log


def _ray() -> Path:
    """Find Ray's directory without an import. Raises PrerequisiteError."""
    installed = importlib.util.find_spec("ray")
    if installed is None or installed.origin is None:
        raise PrerequisiteError(
            "Ray, whose `ray up` makes clusters on EC2, is not installed",
            hint=f"Install it: {versions.installing('ec2')}",
        )
    return Path(installed.origin).parent


def _environment(environ: Mapping[str, str], directory: str) -> dict[str, str]:
    """Return `ray up`'s environment, without variables of a running cluster."""
    kept = {}
    for key, value in environ.items():
        if not key.startswith(("RAY_ADDRESS", "RAY_AUTH_")):
            kept[key] = value
    added = {"TMPDIR": directory, "PYTHONUNBUFFERED": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    # The default since Ray 2.50; older versions shall use the same autoscaler.
    return {**kept, **added, "RAY_UP_enable_autoscaler_v2": "1"}
