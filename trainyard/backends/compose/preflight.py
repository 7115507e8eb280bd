"""What the Docker host has for the nodes of a cluster."""

from __future__ import annotations

from dataclasses import replace

from trainyard.backends import ray_nodes
from trainyard.backends.compose.diagnosis import CONFIGURE
from trainyard.backends.ray_nodes import NodePlan, Room, shared_memory
from trainyard.errors import PrerequisiteError
from trainyard.seams import nvidia
from trainyard.seams.docker.engine import Engine
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.units import format_size
from trainyard.wording import counted


def node_plans(spec: ClusterSpec, engine: Engine) -> tuple[NodePlan, ...]:
    """Return the plan of every node. Raises PrerequisiteError for GPUs that the host cannot give to containers."""
    facts = engine.info()
    # nvidia-smi may take seconds: it is asked only where GPUs matter.
    count = sum(node.gpus for node in spec.nodes())
    real = gpu_ids(engine, count, may_simulate=spec.compose.simulated_gpus) if count else ()
    # Ray's own share of a machine's memory is 70 %.
    room = Room(int(facts["NCPU"]), int(facts["MemTotal"]) * 7 // 10, real or ())
    plans = ray_nodes.node_plans(spec, room, simulated=real is None, machine="the Docker host")
    return tuple(in_a_container(plan, spec) for plan in plans)


def gpu_ids(engine: Engine, count: int, *, may_simulate: bool = False) -> tuple[str, ...] | None:
    """Return the indices of the host's GPUs, None if there are too few of them and they may be simulated.

    Raises PrerequisiteError when there is no driver, or no toolkit.
    """
    facts = nvidia.look(engine)
    if may_simulate and (facts.toolkit is None or len(facts.gpu_ids) < count):
        return None
    where = f"Docker host {engine.host}" + (f": {facts.detail}" if facts.detail else "")
    if not facts.gpu_ids:
        raise PrerequisiteError(
            f"the cluster wants {counted(count, 'GPU')}, and the Docker host has no working NVIDIA driver",
            where=where,
            hint="Install the driver, restart the host, and look: nvidia-smi. Or, to try the layout without GPUs, "
            "write `compose: {simulated_gpus: true}`.",
        )
    if facts.toolkit is None:
        raise PrerequisiteError(
            "the driver is there, but NVIDIA's container toolkit is not: no container can be given a GPU",
            where=where,
            hint=f"Install the package nvidia-container-toolkit (NVIDIA's repository), then: {CONFIGURE}",
        )
    return facts.gpu_ids


def in_a_container(plan: NodePlan, spec: ClusterSpec) -> NodePlan:
    """Return the plan with what only containers have."""
    section = spec.compose
    shm_size, object_store = shared_memory(plan.memory, section.shm_size)
    mounts = {
        f"mount {mount.source} at {mount.target}{' (read only)' * mount.read_only}": "yes" for mount in section.mounts
    }
    others = {"shared memory": format_size(shm_size), "outputs": section.outputs, **mounts}
    if plan.is_head:
        others["dashboard_port"] = str(section.dashboard_port or "any")
    return replace(plan, object_store=object_store, others=others)
