"""What is written down about a local cluster: its token, its ports, and each node's keeper."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path

from trainyard_runner import tree

from trainyard.backends import record as private
from trainyard.backends.local.layout import NodePlan, Ports
from trainyard.errors import LeftoverError, OutsideError
from trainyard.seams.processes import ProcessId

# Short, since the path of a UNIX socket has at most 107 bytes (unix(7)) and Ray's own part takes 64 of them.
TEMP_PARENT = "/tmp"  # noqa: S108 (the directory below is ours alone: see private_directory)


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


@dataclass(frozen=True)
class ClusterFiles:
    """Where a local cluster keeps what; all of it is 0700 and 0600, and removed by `cluster.down`."""

    state: Path

    @property
    def token(self) -> Path:
        """Return the file with the token."""
        return self.state / "token"

    @property
    def nodes(self) -> Path:
        """Return the directory with a record and a log per node."""
        return self.state / "nodes"

    @property
    def key(self) -> str:
        """Return a short name for this cluster that no other one on this machine has."""
        return hashlib.sha256(str(self.state.absolute()).encode()).hexdigest()[:8]

    @property
    def temp(self) -> Path:
        """Return the directory that holds every node's temporary directory."""
        return Path(TEMP_PARENT) / f"trainyard-{os.getuid()}" / self.key

    def node_temp(self, name: str) -> Path:
        """Return the directory that Ray uses for one node."""
        return self.temp / hashlib.sha256(name.encode()).hexdigest()[:6]

    def node_log(self, name: str) -> Path:
        """Return the file with what `ray start` of a node printed."""
        return self.nodes / f"{name}.log"

    def node_record(self, name: str) -> Path:
        """Return the file that names a node's keeper."""
        return self.nodes / f"{name}.json"

    def marker(self, name: str | None = None) -> str:
        """Return what every process of the cluster, or of a node, has in its environment."""
        return f"{self.key}/" if name is None else f"{self.key}/{name}/"

    def prepare(self) -> None:
        """Make the directories, readable by nobody else."""
        self.nodes.mkdir(parents=True, exist_ok=True, mode=0o700)
        for directory in (self.state, self.nodes):
            directory.chmod(0o700)
        private_directory(self.temp.parent)
        private_directory(self.temp)


def private_directory(path: Path) -> None:
    """Make a directory that only we can look into. Raises OutsideError if somebody else made it before us."""
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise OutsideError(
            f"{path} is not a directory that only you can use",
            hint="Remove it, or find out who made it.",
        )


def make_token(files: ClusterFiles) -> None:
    """Write a new token."""
    private.make_token(files.token)


def read_token(files: ClusterFiles) -> str | None:
    """Return the cluster's token, or None if it has none."""
    return private.read_token(files.token)


def write_cluster(files: ClusterFiles, record: ClusterRecord) -> None:
    """Write down what belongs to the cluster as a whole."""
    private.write_private(files.state / "cluster.json", json.dumps({"backend": "local", **asdict(record)}, indent=2))


def read_cluster(files: ClusterFiles) -> ClusterRecord | None:
    """Return the record, or None if none was written."""
    found = private.read_json(files.state / "cluster.json")
    if found is None:
        return None
    return ClusterRecord(found["name"], Ports(**found["ports"]), found["simulated_gpus"], found["auth"])


def write_node(files: ClusterFiles, plan: NodePlan, *, gcs_port: int, process: ProcessId) -> None:
    """Write down a node's keeper; the keeper waits for this before it starts anything."""
    record = NodeRecord(plan.name, plan.group, plan.cpus, plan.gpus, plan.as_text(), gcs_port, process)
    private.write_private(files.node_record(plan.name), json.dumps(asdict(record), indent=2))


def read_nodes(files: ClusterFiles) -> dict[str, NodeRecord]:
    """Return every recorded node by its name, the head first."""
    found = [private.read_json(path) for path in sorted(files.nodes.glob("*.json"))]
    records = [NodeRecord(**{**row, "process": ProcessId(**row["process"])}) for row in found if row]
    return {record.name: record for record in sorted(records, key=lambda record: record.name != "head")}


def forget_node(files: ClusterFiles, name: str) -> None:
    """Remove what is written about a node, and its temporary directory. Raises LeftoverError."""
    _remove(files.node_temp(name))
    files.node_record(name).unlink(missing_ok=True)
    files.node_log(name).unlink(missing_ok=True)


def forget_cluster(files: ClusterFiles) -> None:
    """Remove everything that is written about a cluster. Raises LeftoverError."""
    _remove(files.temp)
    _remove(files.state)


def _remove(directory: Path) -> None:
    try:
        tree.remove(str(directory))
    except OSError as error:
        raise LeftoverError(
            f"not all of {directory} can be removed: {error.filename}: {error.strerror}",
            hint="Repeat the same command once the cause is gone: a file of another user, something mounted there?",
        ) from error
