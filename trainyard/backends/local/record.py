"""What is written down about a local cluster: its ports, and each node's keeper."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from trainyard_runner import tree

from trainyard.backends.local.desired import Ports
from trainyard.backends.local.naming import ClusterFiles
from trainyard.backends.ray_nodes import NodePlan
from trainyard.backends.record import read_cluster, read_json, write_cluster, write_private
from trainyard.errors import LeftoverError
from trainyard.seams.processes import ProcessId


@dataclass(frozen=True)
class NodeRecord:
    """A node that was started: what it should be, and the process that keeps it."""

    name: str
    group: str
    cpus: int
    gpus: int
    plan: str
    gcs_port: int
    process: ProcessId


@dataclass(frozen=True)
class ClusterRecord:
    """What belongs to the cluster as a whole."""

    name: str
    ports: Ports
    simulated_gpus: bool
    auth: str


def write(files: ClusterFiles, backend: str, record: ClusterRecord) -> None:
    write_cluster(files.state, backend, asdict(record))


def read(files: ClusterFiles, backend: str) -> ClusterRecord | None:
    found = read_cluster(files.state, backend)
    if found is None:
        return None
    return ClusterRecord(found["name"], Ports(**found["ports"]), found["simulated_gpus"], found["auth"])


def write_node(files: ClusterFiles, plan: NodePlan, *, gcs_port: int, process: ProcessId) -> None:
    """Write down a node's keeper; the keeper waits for this before it starts anything."""
    record = NodeRecord(plan.name, plan.group, plan.cpus, plan.gpus, plan.as_text(), gcs_port, process)
    write_private(files.node_record(plan.name), json.dumps(asdict(record), indent=2))


def read_nodes(files: ClusterFiles) -> dict[str, NodeRecord]:
    found = [read_json(path) for path in sorted(files.nodes.glob("*.json"))]
    records = [NodeRecord(**{**row, "process": ProcessId(**row["process"])}) for row in found if row]
    return {record.name: record for record in sorted(records, key=lambda record: record.name != "head")}


def forget_node(files: ClusterFiles, name: str) -> None:
    """Remove what is written about a node, and its temporary directory. Raises LeftoverError."""
    remove(files.node_temp(name))
    files.node_record(name).unlink(missing_ok=True)
    files.node_log(name).unlink(missing_ok=True)


def remove(directory: Path) -> None:
    """Remove a directory with all that is in it. Raises LeftoverError."""
    try:
        tree.remove(str(directory))
    except OSError as error:
        raise LeftoverError(
            f"not all of {directory} can be removed: {error.filename}: {error.strerror}",
            hint="Repeat the same command once the cause is gone: a file of another user, something mounted there?",
        ) from error
