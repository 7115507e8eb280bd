"""Starts, records, finds and ends the processes of a local cluster's nodes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainyard.backends.local.naming import ClusterFiles
from trainyard.backends.shared import ray_nodes
from trainyard.backends.shared.ray_nodes import NodePlan
from trainyard.backends.shared.record import read_json, write_private
from trainyard.errors import LeftoverError
from trainyard.seams import processes
from trainyard.seams.forwarding import LOOPBACK
from trainyard.seams.processes import ProcessId

# Separate programs, run by their paths.
KEEPER = Path(processes.__file__).with_name("keeper.py")
LAUNCHER = Path(processes.__file__).with_name("ray_launcher.py")


@dataclass(frozen=True)
class Ports:
    """The head's ports that others must know; Ray chooses the other ports."""

    gcs: int
    dashboard: int


@dataclass(frozen=True)
class NodeRecord:
    """The plan that a node was made from, and its keeper's process."""

    made_from: dict[str, Any]
    process: ProcessId


def start(files: ClusterFiles, plan: NodePlan, ports: Ports, *, environ: Mapping[str, str]) -> None:
    """Start a node's keeper, which starts Ray, and record it."""
    temp_dir = files.node_temp(plan.name)
    # Ray opens `temp_dir` to all users, but only this user can enter its parent. The directory may
    # exist: on a busy machine, an earlier node was seen to leave its directory behind.
    temporary(files, plan.name).mkdir(parents=True, exist_ok=True, mode=0o700)
    # A link stays unresolved: Python finds its virtual environment only by this path.
    python = Path(sys.executable)
    environment = node_environment(files, plan, environ, programs=python.parent)
    log = files.node_log(plan.name)

    keeper = [str(python), str(KEEPER), str(files.node_record(plan.name)), str(log)]
    ray = [str(python), str(LAUNCHER), "start", f"--temp-dir={temp_dir}"]
    command = [*keeper, *ray, *ray_arguments(plan, ports)]
    write(files, plan, processes.start(command, env=environment, log=log, directory=temp_dir))


def temporary(files: ClusterFiles, name: str) -> Path:
    return files.node_temp(name) / "tmp"


def ray_arguments(plan: NodePlan, ports: Ports) -> list[str]:
    """Return a node's `ray start` arguments; port 0 lets Ray choose one."""
    dashboard = (LOOPBACK, ports.dashboard)
    return [
        *ray_nodes.start_arguments(plan, head=LOOPBACK, gcs_port=ports.gcs, dashboard=dashboard),
        *([f"--node-ip-address={LOOPBACK}"] if plan.is_head else []),
        "--node-manager-port=0",
        "--object-manager-port=0",
        "--dashboard-agent-listen-port=0",
        *ray_nodes.own_arguments(plan.ray_start),
    ]


def node_environment(
    files: ClusterFiles, plan: NodePlan, environ: Mapping[str, str], *, programs: Path
) -> dict[str, str]:
    """Return `environ`, overridden by the file's variables, then Trainyard's.

    RAY_* and TRAINYARD_* of this process are left out. `programs` comes first
    on PATH.
    """
    kept = {}
    for key, value in environ.items():
        if not key.startswith(("RAY_", "TRAINYARD_")):
            kept[key] = value

    if plan.gpu_ids is None:
        # Ray rejects simulated GPUs if CUDA_VISIBLE_DEVICES lists fewer than --num-gpus.
        kept.pop("CUDA_VISIBLE_DEVICES", None)
    else:
        kept["CUDA_VISIBLE_DEVICES"] = ",".join(plan.gpu_ids)

    # A killed process (Python's multiprocessing) may leave files in TMPDIR, which are removed with
    # the node.
    kept["TMPDIR"] = str(temporary(files, plan.name))
    desired = {**kept, **dict(plan.env)}
    return {
        **desired,
        **ray_nodes.variables(plan, token_file=str(files.token)),
        processes.MARKER: files.marker(plan.name),
        "PATH": f"{programs}:{desired.get('PATH', '/usr/bin:/bin')}",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    }


def write(files: ClusterFiles, plan: NodePlan, process: ProcessId) -> None:
    """Record a node; its keeper waits for the record before it starts Ray."""
    record = NodeRecord(plan.recorded(), process)
    write_private(files.node_record(plan.name), json.dumps(asdict(record), indent=2))


def read(files: ClusterFiles) -> dict[str, NodeRecord]:
    """Return the records by node name, the head first."""
    records = {}
    for path in sorted(files.nodes.glob("*.json")):
        row = read_json(path)
        if row:
            process = ProcessId(**row["process"])
            records[path.stem] = NodeRecord(row.get("made_from", {}), process)
    return dict(sorted(records.items(), key=lambda item: item[0] != "head"))


def of_cluster(files: ClusterFiles) -> frozenset[ProcessId]:
    keepers = [record.process for record in read(files).values()]
    return processes.members(keepers, marker=files.marker())


def end(files: ClusterFiles, names: Iterable[str]) -> None:
    """End these nodes in parallel, and remove their files.

    Raises LeftoverError if a process stays.
    """
    recorded = read(files)
    chosen = [name for name in names if name in recorded]
    _end([recorded[name] for name in chosen], [files.marker(name) for name in chosen])
    for name in chosen:
        files.forget(name)


def end_cluster(files: ClusterFiles) -> None:
    """End all processes of the cluster, recorded or not.

    Raises LeftoverError if a process stays.
    """
    _end(read(files).values(), [files.marker()])


def _end(records: Iterable[NodeRecord], markers: Sequence[str]) -> None:
    keepers = [record.process for record in records]
    for keeper in keepers:
        processes.terminate(keeper)

    def members() -> frozenset[ProcessId]:
        found: set[ProcessId] = set()
        for marker in markers:
            found |= processes.members(keepers, marker=marker)
        return frozenset(found)

    # A keeper needs 3 s to end its node. After the grace, remaining processes are killed.
    left = processes.end(members, grace=5.0, deadline=5.0)
    if left:
        raise LeftoverError(
            f"{len(left)} processes of the cluster do not end",
            where=f"pids {', '.join(sorted(str(process.pid) for process in left))}",
            hint="Repeat the same command; `ps -o pid,stat,wchan,args -p PID` shows what a "
            "process waits for.",
        )
