"""Before anything is made or removed: what the Docker host has, and whether a node could run there."""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.backends import ray_nodes
from trainyard.backends.compose import snapshot
from trainyard.backends.compose.diagnosis import CONFIGURE, FREE_PORT, LINT, explained
from trainyard.backends.ray_nodes import NodePlan, Room, shared_memory
from trainyard.backends.wording import counted
from trainyard.errors import NotReadyError, PrerequisiteError
from trainyard.images.types import PinnedImage
from trainyard.seams import nvidia
from trainyard.seams.docker import containers as docker_containers
from trainyard.seams.docker.engine import Engine
from trainyard.seams.docker.once import run_once
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.units import format_size

LOOPBACK = "127.0.0.1"
SIMULATE = "to try the layout without GPUs, write `compose: {simulated_gpus: true}`"
# `ray --version` takes a second; on a busy machine, with an image that was pulled just now, a minute.
PROBE_SECONDS = 180.0


def node_plans(spec: ClusterSpec, engine: Engine, gpu_ids: tuple[str, ...], *, simulated: bool) -> tuple[NodePlan, ...]:
    """Return the plan of every node on a host with these GPUs; Ray's own share of a machine's memory is 70 %."""
    facts = engine.info()
    room = Room(cpus=int(facts["NCPU"]), memory=int(facts["MemTotal"]) * 7 // 10, gpu_ids=gpu_ids)
    return ray_nodes.node_plans(spec, room, simulated=simulated, machine="the Docker host")


def gpus(spec: ClusterSpec, engine: Engine) -> tuple[tuple[str, ...], bool]:
    """Return the GPUs of the host, and whether those of the file are only numbers there.

    Raises PrerequisiteError if GPUs are asked for that the host cannot give to containers.
    """
    # nvidia-smi may take seconds: it is asked only where GPUs matter.
    count = sum(node.gpus for node in spec.nodes())
    if not count:
        return (), False
    if not spec.compose.simulated_gpus:
        return gpu_ids(engine, count=count), False
    facts = nvidia.look(engine)
    enough = facts.toolkit is not None and len(facts.gpu_ids) >= count
    return (facts.gpu_ids, False) if enough else ((), True)


def gpu_ids(engine: Engine, *, count: int) -> tuple[str, ...]:
    """Return the indices of the host's GPUs.

    Raises PrerequisiteError when there is no driver, no toolkit, or fewer GPUs than that.
    """
    facts = nvidia.look(engine)
    where = f"Docker host {engine.host}" + (f": {facts.detail}" if facts.detail else "")
    wants = f"the cluster wants {counted(count, 'GPU')}"
    if not facts.gpu_ids:
        raise PrerequisiteError(
            f"{wants}, and the Docker host has no working NVIDIA driver",
            where=where,
            hint=f"Install the driver, restart the host, and look: nvidia-smi. Or, {SIMULATE}.",
        )
    if facts.toolkit is None:
        raise PrerequisiteError(
            "the driver is there, but NVIDIA's container toolkit is not: no container can be given a GPU",
            where=where,
            hint=f"Install the package nvidia-container-toolkit (NVIDIA's repository), then: {CONFIGURE}",
        )
    if len(facts.gpu_ids) < count:
        have = f"{wants}, the Docker host has {len(facts.gpu_ids)}"
        raise PrerequisiteError(have, where=where, hint=f"Want fewer, or, {SIMULATE}.")
    return facts.gpu_ids


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


def refuse_taken_port(engine: Engine, spec: ClusterSpec) -> None:
    """Raise PrerequisiteError if somebody else has compose.dashboard_port."""
    port = spec.compose.dashboard_port
    if port is None or snapshot.dashboard_port(snapshot.nodes(engine, spec.name)) == port:
        return
    holder = docker_containers.port_holder(engine, LOOPBACK, port)
    if holder:
        raise PrerequisiteError(
            f"port {port} of {LOOPBACK} is taken by {holder}",
            where=f"compose.dashboard_port, Docker host {engine.host}",
            hint=f"{FREE_PORT} Or give another one.",
        )


def probe_image(engine: Engine, image: PinnedImage, spec: ClusterSpec) -> None:
    """Start Ray's command in a container of the image, with every mount, for a moment. Raises what stands in the way.

    A head that fits is proof enough for its workers: image and mounts are the same.
    """
    with explained(image=image.name):
        ended = run_once(
            engine,
            image.reference,
            ["--version"],
            entrypoint=["ray"],
            environ=spec.env,
            binds={mount.target: mount.source for mount in spec.compose.mounts},
            seconds=PROBE_SECONDS,
        )
    if ended.code is None:
        raise NotReadyError(f"`ray --version` does not end in the image {image.name}", where=image.reference)
    if ended.code:
        raise PrerequisiteError(
            f"Ray does not start in the image {image.name} (`ray --version`: exit code {ended.code})",
            where=(ended.stderr.strip() or ended.stdout.strip() or "(it said nothing)").splitlines()[-1],
            hint=LINT,
        )


def probe_gpus(engine: Engine, reference: str, ids: tuple[str, ...]) -> None:
    """Give the GPUs to a container of this image, for a moment.

    Raises PrerequisiteError when Docker does not use the toolkit that is installed. No list tells this beforehand:
    Docker shows configured runtimes, but a toolkit that was there when Docker started works without one.
    """
    with explained(image=reference, program="true"):
        run_once(engine, reference, [], entrypoint=["true"], gpu_ids=ids)
