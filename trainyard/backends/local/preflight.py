"""What this machine has, and whether it can hold the nodes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from trainyard import versions
from trainyard.backends import ray_nodes
from trainyard.backends.local.naming import TEMP_PARENT
from trainyard.backends.ray_nodes import NodePlan, Room
from trainyard.errors import PrerequisiteError
from trainyard.seams import processes, programs
from trainyard.spec.cluster import ClusterSpec

GIBIBYTE = 1024**3
# Measured: the processes of a node that runs nothing hold 0.35 GiB, those of the head 0.6 GiB.
MEMORY_OF_A_NODE = 0.4 * GIBIBYTE
# Ray stops spilling objects, and warns all the time, on a disk that is 95 % full.
DISK_NEEDED = 1 * GIBIBYTE


def node_plans(spec: ClusterSpec, environ: Mapping[str, str]) -> tuple[NodePlan, ...]:
    """Return the plan of every node; one that does not say how much it needs may use the whole machine.

    Raises PrerequisiteError when nodes need more GPUs than there are and may not simulate them.
    """
    count = sum(node.gpus for node in spec.nodes())
    # nvidia-smi may take seconds: it is asked only where GPUs matter.
    real = gpu_ids(environ) if count else ()
    # Ray's own share of a machine's memory is 70 %.
    room = Room(os.cpu_count() or 1, processes.memory_total() * 7 // 10, real)
    simulated = spec.local.simulated_gpus and count > len(real)
    return ray_nodes.node_plans(spec, room, simulated=simulated, machine="this machine")


def gpu_ids(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the indices that nvidia-smi lists, less those that CUDA_VISIBLE_DEVICES hides from us."""
    ran = programs.run(["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"], env=environ, seconds=20.0)
    rows = [[cell.strip() for cell in line.split(",")] for line in ran.tail if "," in line and ran.code == 0]
    if "CUDA_VISIBLE_DEVICES" not in environ:
        return tuple(row[0] for row in rows)
    visible = [device.strip() for device in environ["CUDA_VISIBLE_DEVICES"].split(",")]
    return tuple(row[0] for row in rows if row[0] in visible or row[1] in visible)


def check(nodes: int) -> None:
    """Raise PrerequisiteError for what this machine lacks to start so many nodes."""
    try:
        ray = f"ray {version('ray')}"
    except PackageNotFoundError:
        ray = "no ray"
    if ray != f"ray {versions.RAY}":
        raise PrerequisiteError(
            f"the local backend needs ray {versions.RAY}, and {ray} is installed in this Python",
            hint=f"Install it: python -m pip install 'ray[default]=={versions.RAY}'",
        )
    require("memory", processes.memory_available(), int(MEMORY_OF_A_NODE * nodes), "Ray's own processes")
    require("disk", shutil.disk_usage(TEMP_PARENT).free, DISK_NEEDED, "Ray's files in /tmp")


def require(what: str, free: int, needed: int, for_what: str) -> None:
    if free < needed:
        raise PrerequisiteError(
            f"too little {what}: {free / GIBIBYTE:.1f} GiB free, {for_what} need {needed / GIBIBYTE:.1f} GiB",
            hint="Free some, or want fewer nodes.",
        )
