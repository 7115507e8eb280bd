"""What this machine has, and whether it can hold the nodes."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from trainyard import versions
from trainyard.backends import ray_nodes
from trainyard.backends.local.naming import TEMP_PARENT
from trainyard.backends.ray_nodes import NodePlan, Room
from trainyard.errors import PrerequisiteError
from trainyard.seams import processes
from trainyard.spec.cluster import ClusterSpec

GIBIBYTE = 1024**3
# Measured: the processes of a node that runs nothing hold 0.35 GiB, those of the head 0.6 GiB.
MEMORY_OF_A_NODE = 0.4 * GIBIBYTE
# Ray stops spilling objects, and warns all the time, on a disk that is 95 % full.
DISK_NEEDED = 1 * GIBIBYTE
# Ray raises the soft limit to the hard one by itself; below this its GCS runs out of sockets.
OPEN_FILES_NEEDED = 1024


@dataclass(frozen=True)
class Machine:
    """Facts about this machine; sizes in bytes."""

    memory_free: int
    disk_free: int
    shared_memory_free: int | None
    open_files: int
    ray: str | None


def inspect() -> Machine:
    """Ask this machine what it has."""
    shared = Path("/dev/shm")  # noqa: S108 (where Ray keeps its objects on Linux)
    return Machine(
        memory_free=processes.memory_available(),
        disk_free=shutil.disk_usage(TEMP_PARENT).free,
        shared_memory_free=shutil.disk_usage(shared).free if shared.is_dir() else None,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        ray=_installed_ray(),
    )


def node_plans(spec: ClusterSpec, environ: Mapping[str, str]) -> tuple[NodePlan, ...]:
    """Return the plan of every node; one that does not say how much it needs may use the whole machine.

    Raises PrerequisiteError when nodes need more GPUs than there are and may not simulate them.
    """
    count = sum(node.gpus for node in spec.nodes())
    # nvidia-smi may take seconds: it is asked only where GPUs matter.
    found = gpu_ids(environ) if count else ()
    # Ray's own share of a machine's memory is 70 %.
    room = Room(os.cpu_count() or 1, processes.memory_total() * 7 // 10, found)
    simulated = spec.local.simulated_gpus and count > len(found)
    return ray_nodes.node_plans(spec, room, simulated=simulated, machine="this machine")


def gpu_ids(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the indices that nvidia-smi lists, less those that CUDA_VISIBLE_DEVICES hides from us."""
    listed = processes.answer_of(["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"], seconds=20.0)
    rows = [[cell.strip() for cell in line.split(",")] for line in (listed or "").splitlines() if "," in line]
    if "CUDA_VISIBLE_DEVICES" not in environ:
        return tuple(row[0] for row in rows)
    visible = [device.strip() for device in environ["CUDA_VISIBLE_DEVICES"].split(",")]
    return tuple(row[0] for row in rows if row[0] in visible or row[1] in visible)


def check(plans: Sequence[NodePlan], machine: Machine) -> list[str]:
    """Return what is worth a warning. Raises PrerequisiteError for what this machine lacks."""
    if machine.ray != versions.RAY:
        found = "no ray is installed" if machine.ray is None else f"ray {machine.ray} is installed"
        raise PrerequisiteError(
            f"the local backend needs ray {versions.RAY}, and {found} in this Python",
            hint=f"Install it: python -m pip install 'ray[default]=={versions.RAY}'",
        )
    _require("memory", machine.memory_free, int(MEMORY_OF_A_NODE * len(plans)), "Ray's own processes")
    _require("disk", machine.disk_free, DISK_NEEDED, "Ray's files in /tmp")
    unlimited = machine.open_files in (resource.RLIM_INFINITY, -1)
    if not unlimited and machine.open_files < OPEN_FILES_NEEDED:
        raise PrerequisiteError(
            f"a process may open {machine.open_files} files here; Ray needs {OPEN_FILES_NEEDED}",
            hint=f"Raise the limit: ulimit -Hn {OPEN_FILES_NEEDED} (as root), or in /etc/security/limits.conf",
        )
    objects = sum(plan.object_store for plan in plans)
    free = machine.shared_memory_free
    if free is None or free >= objects:
        return []
    return [f"shared memory has {_gib(free)} free, the nodes may use {_gib(objects)}: large objects will be slow"]


def _require(what: str, free: int, needed: int, for_what: str) -> None:
    if free < needed:
        raise PrerequisiteError(
            f"too little {what}: {_gib(free)} free, {for_what} need {_gib(needed)}",
            hint="Free some, or want fewer nodes.",
        )


def _installed_ray() -> str | None:
    try:
        return version("ray")
    except PackageNotFoundError:
        return None


def _gib(size: int) -> str:
    return f"{size / GIBIBYTE:.1f} GiB"
