"""The Docker host of a cluster: the way to it, what it has, and what we wrote down about it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from trainyard.backends import nvidia
from trainyard.backends import record as records
from trainyard.backends.compose import labels
from trainyard.backends.contract import Tools
from trainyard.backends.ray_nodes import NodePlan, Room, shared_memory
from trainyard.errors import RequestError
from trainyard.seams import nvidia as nvidia_seam
from trainyard.seams.docker import engine as docker_engine
from trainyard.seams.docker.engine import Engine
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.units import format_size


@dataclass(frozen=True)
class Record:
    """What is written down, so that the cluster is found although its file, $DOCKER_HOST or our host name changed."""

    name: str
    docker: str
    owner: str


def token_file(tools: Tools) -> Path:
    """Return the file with the cluster's token."""
    return tools.state / "token"


def write_record(tools: Tools, record: Record) -> None:
    """Write down where the cluster is."""
    tools.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    tools.state.chmod(0o700)
    records.write_private(tools.state / "cluster.json", json.dumps({"backend": "compose", **asdict(record)}, indent=2))


def read_record(tools: Tools) -> Record | None:
    """Return what was written down, or None."""
    found = records.read_json(tools.state / "cluster.json")
    if not found or found.get("backend") != "compose":
        return None
    return Record(found["name"], found["docker"], found["owner"])


def owner(tools: Tools) -> str:
    """Return who we are to others on the Docker host, as it was when the cluster was made."""
    record = read_record(tools)
    return record.owner if record else labels.owner(tools.state)


def connect(spec: ClusterSpec, tools: Tools) -> Engine:
    """Connect to the engine that has the cluster, or is to have it. Raises PrerequisiteError if it does not answer."""
    record = read_record(tools)
    address = record.docker if record else wanted_address(spec, tools)
    return docker_engine.connect(tools.environ, address=address)


def wanted_address(spec: ClusterSpec, tools: Tools) -> str:
    """Return the address of the engine that the file asks for, or that `docker` talks to here.

    Raises RequestError for one that only Docker can be reached at: the dashboard is on that host's loopback.
    """
    address = spec.compose.docker or docker_engine.found_address(tools.environ)
    if not address.startswith(("unix://", "ssh://")):
        raise RequestError(
            f"backend 'compose' needs a Docker host here or over SSH, and `docker` talks to {address}",
            where="$DOCKER_HOST" if tools.environ.get("DOCKER_HOST") else "Docker's current context",
            hint="Write `compose: {docker: ssh://user@host}`; Docker over plain TCP lets everybody in.",
        )
    return address


def refuse_other_host(spec: ClusterSpec, tools: Tools) -> None:
    """Raise RequestError if the cluster is on another Docker host than the file now asks for."""
    record = read_record(tools)
    wanted = wanted_address(spec, tools)
    if record and record.docker != wanted:
        raise RequestError(
            f"cluster {spec.name} is on the Docker host {record.docker}; now {wanted} is asked for",
            where=str(tools.source) if tools.source else None,
            hint="Remove it there first: invoke cluster.down",
        )


def room(spec: ClusterSpec, engine: Engine) -> tuple[Room, bool]:
    """Return what the host has, and whether the GPUs of the file are only numbers there.

    Raises PrerequisiteError if GPUs are asked for that the host cannot give to containers.
    """
    facts = engine.info()
    ids, simulated = _gpus(spec, engine)
    # Ray's own share of a machine's memory is 70 %.
    return Room(cpus=int(facts["NCPU"]), memory=int(facts["MemTotal"]) * 7 // 10, gpu_ids=ids), simulated


def _gpus(spec: ClusterSpec, engine: Engine) -> tuple[tuple[str, ...], bool]:
    # nvidia-smi may take seconds: it is asked only where GPUs matter.
    wanted = sum(node.gpus for node in spec.nodes())
    if not wanted:
        return (), False
    if spec.compose.simulated_gpus:
        facts = nvidia_seam.look(engine)
        enough = facts.toolkit is not None and len(facts.gpu_ids) >= wanted
        return (facts.gpu_ids, False) if enough else ((), True)
    return nvidia.gpu_ids(engine, wanted=wanted), False


def warnings(engine: Engine, plans: Sequence[NodePlan], shm_size: int | None) -> list[str]:
    """Return what may be too little on the host for these nodes."""
    objects = sum(shared_memory(plan.memory, shm_size)[1] for plan in plans)
    memory = int(engine.info()["MemTotal"])
    if objects * 2 <= memory:
        return []
    return [
        f"the nodes' object stores may take {format_size(objects)} of the host's {format_size(memory)} of memory: "
        "write less `memory` for the nodes, or a smaller compose.shm_size"
    ]
