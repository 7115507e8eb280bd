"""From a cluster file to the nodes of one machine, which several backends share; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainyard.backends.words import counted
from trainyard.errors import PrerequisiteError, Problem, RequestError
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.nodes import NodeSpec
from trainyard.spec.units import format_size

MEBIBYTE = 1024**2
SMALLEST_OBJECT_STORE = 100 * MEBIBYTE
LARGEST_OBJECT_STORE = 1024 * MEBIBYTE
# Shared memory also serves others on a node, such as PyTorch's data loaders; it costs only what is used.
SPARE_SHARED_MEMORY = 512 * MEBIBYTE


@dataclass(frozen=True)
class Room:
    """What the machine has: a node that does not say how much it wants may use all of it. Memory in bytes."""

    cpus: int
    memory: int
    gpu_ids: tuple[str, ...]


@dataclass(frozen=True)
class NodePlan:
    """A node as it should run. Two equal plans mean that nothing has to be done.

    `gpu_ids` are the real GPUs it gets; None if its GPUs are simulated.
    """

    name: str
    group: str
    cpus: int
    memory: int
    object_store: int
    gpus: int
    gpu_ids: tuple[str, ...] | None
    auth: str
    env: tuple[tuple[str, str], ...]

    @property
    def is_head(self) -> bool:
        """Say whether this node holds the GCS and the dashboard."""
        return self.name == "head"

    def as_text(self) -> str:
        """Return the plan as it is recorded, to be compared with another one."""
        return json.dumps(asdict(self), sort_keys=True)


def node_plans(spec: ClusterSpec, room: Room, *, simulated: bool, machine: str) -> tuple[NodePlan, ...]:
    """Return the plan of every node; real GPUs are dealt out by index, each to one node.

    Raises PrerequisiteError when nodes want more GPUs than `machine` ("this machine") has and may not simulate them.
    """
    nodes = spec.nodes()
    wanted = sum(node.gpus for node in nodes)
    if wanted > len(room.gpu_ids) and not simulated:
        raise PrerequisiteError(
            f"the cluster file wants {counted(wanted, 'GPU')}, {machine} has {len(room.gpu_ids) or 'none'}",
            where=", ".join(f"{node.name}: {node.gpus}" for node in nodes if node.gpus),
            hint=f"Want fewer, or write `{spec.backend}: {{simulated_gpus: true}}` to try the layout without them.",
        )
    plans = []
    taken = 0
    for node in nodes:
        own = None if simulated else room.gpu_ids[taken : taken + node.gpus]
        plans.append(_node_plan(spec, node, room, gpu_ids=own))
        taken += node.gpus
    return tuple(plans)


def changes(there: Mapping[str, Any], wanted: NodePlan) -> list[str]:
    """Say what a node should have otherwise than it was made with; values of variables are not shown."""
    plan = json.loads(wanted.as_text())
    other = [name for name in plan if name != "env" and there.get(name) != plan[name]]
    found = [f"{name.replace('_', ' ')}: {_shown(there.get(name))} now, {_shown(plan[name])} wanted" for name in other]
    old, new = dict(there.get("env") or ()), dict(plan["env"])
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            found.append(f"env.{name} is {'gone' if name not in new else 'another' if name in old else 'new'}")
    return found


def object_store(memory: int) -> int:
    """Return the size of Ray's object store on a node with so much memory; in bytes."""
    return max(SMALLEST_OBJECT_STORE, min(LARGEST_OBJECT_STORE, memory * 3 // 10))


def shared_memory(memory: int, shm_size: int | None) -> tuple[int, int]:
    """Return the size of a container's /dev/shm, and of Ray's object store in it; all in bytes.

    The object store must be smaller than /dev/shm, or Ray puts it on the disk (ray/_private/services.py).
    """
    if shm_size is None:
        return object_store(memory) + SPARE_SHARED_MEMORY, object_store(memory)
    return shm_size, max(SMALLEST_OBJECT_STORE, shm_size * 8 // 10)


def _shown(value: object) -> str:
    """Return a value of a plan; numbers this large are bytes."""
    return format_size(value) if isinstance(value, int) and value >= MEBIBYTE else str(value)


def simulates_gpus(spec: ClusterSpec, gpu_ids: Sequence[str], *, allowed: bool) -> bool:
    """Say whether the declared GPUs are only numbers: allowed by the file, and more than there are."""
    return allowed and sum(node.gpus for node in spec.nodes()) > len(gpu_ids)


def refuse_growing_groups(spec: ClusterSpec, *, hint: str) -> None:
    """Raise RequestError if the file asks for groups that grow and shrink: one machine does not get larger."""
    problems = tuple(
        Problem(f"workers.{index}.max", f"{group.max} is above min ({group.wanted}), so the group should grow")
        for index, group in enumerate(spec.workers)
        if group.max is not None and group.max != group.wanted
    )
    if problems:
        raise RequestError(
            f"the {spec.backend} backend cannot grow and shrink worker groups", problems=problems, hint=hint
        )


def _node_plan(spec: ClusterSpec, node: NodeSpec, room: Room, *, gpu_ids: tuple[str, ...] | None) -> NodePlan:
    memory = node.memory or room.memory
    return NodePlan(
        name=node.name,
        group=node.group,
        cpus=room.cpus if node.cpus is None else node.cpus,
        memory=memory,
        object_store=object_store(memory),
        gpus=node.gpus,
        gpu_ids=gpu_ids,
        auth=spec.auth,
        env=tuple(sorted(spec.env.items())),
    )
