"""A local cluster's leash: a process with a record, like nodes' keepers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from trainyard_runner.leash import HOLDS

from trainyard.backends.contract import LeashStatus
from trainyard.backends.local.naming import ClusterFiles
from trainyard.backends.shared.leash import settings
from trainyard.backends.shared.record import read_json, write_private
from trainyard.errors import LeftoverError
from trainyard.seams import processes
from trainyard.seams.processes import ProcessId

# A separate program, run by its path.
PROGRAM = Path(processes.__file__).with_name("local_leash.py")
_MARK = "leash"


def _record(files: ClusterFiles) -> Path:
    return files.state / "leash-process.json"


def observe(files: ClusterFiles) -> LeashStatus | None:
    """Return the recorded leash, if any.

    `problem` says if the leash's process has ended or is starting.
    """
    record = read_json(_record(files))
    if not record:
        return None

    process = ProcessId(**record["process"])
    log = files.node_log(_MARK)
    holds = log.exists() and HOLDS in log.read_text(errors="replace")
    problem = ""
    if not processes.alive(process):
        problem = f"its process has ended; see {log}"
    elif not holds:
        problem = f"its process is starting; see {log}"
    return LeashStatus(record["idle"], record["deadline"], processes.started_at(process), problem)


def start(
    files: ClusterFiles, leash: LeashStatus, address: str, *, environ: Mapping[str, str]
) -> None:
    """Replace the leash's process, and record the new one.

    `address` is the dashboard's.
    """
    end(files)
    log = files.node_log(_MARK)
    log.unlink(missing_ok=True)

    token = str(files.token) if files.token.exists() else None
    paths = [str(path) for path in (files.temp, files.nodes, files.token, _record(files))]
    target = {"marker": files.marker(), "files": paths}
    given = settings(leash, dashboard=address, token_file=token, local=target)
    command = [sys.executable, str(PROGRAM), given]
    environment = {**environ, processes.MARKER: files.marker(_MARK)}
    process = processes.start(command, env=environment, log=log, directory=Path("/"))
    write_private(_record(files), settings(leash, process=asdict(process)))


def end(files: ClusterFiles) -> None:
    """End the leash's process, recorded or not; LeftoverError if it stays."""
    marker = files.marker(_MARK)
    left = processes.end(lambda: processes.members([], marker=marker), grace=2.0, deadline=5.0)
    if left:
        raise LeftoverError(f"the leash does not end: {sorted(process.pid for process in left)}")
    _record(files).unlink(missing_ok=True)
