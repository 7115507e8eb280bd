"""Before containers want GPUs: is there a driver, a toolkit, and does Docker use it? Each with its fix."""

from __future__ import annotations

from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.seams import nvidia
from trainyard.seams.docker import once as docker_once
from trainyard.seams.docker.engine import Engine

CONFIGURE = "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
SIMULATE = "to try the layout without GPUs, write `compose: {simulated_gpus: true}`"
# Docker's words when no driver for such a request is registered (moby, daemon/devices.go).
NO_DEVICE_DRIVER = "could not select device driver"


def gpu_ids(engine: Engine, *, wanted: int) -> tuple[str, ...]:
    """Return the indices of the host's GPUs.

    Raises PrerequisiteError when there is no driver, no toolkit, or fewer GPUs than wanted.
    """
    facts = nvidia.look(engine)
    where = f"Docker host {engine.host}" + (f": {facts.detail}" if facts.detail else "")
    if not facts.gpu_ids:
        raise PrerequisiteError(
            f"the cluster wants {_counted(wanted)}, and the Docker host has no working NVIDIA driver",
            where=where,
            hint=f"Install the driver, restart the host, and look: nvidia-smi. Or, {SIMULATE}.",
        )
    if facts.toolkit is None:
        raise PrerequisiteError(
            "the driver is there, but NVIDIA's container toolkit is not: no container can be given a GPU",
            where=where,
            hint=f"Install the package nvidia-container-toolkit (NVIDIA's repository), then: {CONFIGURE}",
        )
    if len(facts.gpu_ids) < wanted:
        raise PrerequisiteError(
            f"the cluster wants {_counted(wanted)}, the Docker host has {len(facts.gpu_ids)}",
            where=where,
            hint=f"Want fewer, or, {SIMULATE}.",
        )
    return facts.gpu_ids


def prove(engine: Engine, reference: str, ids: tuple[str, ...]) -> None:
    """Give the GPUs to a container of this image, for a moment.

    Raises PrerequisiteError when Docker does not use the toolkit that is installed. No list tells this beforehand:
    Docker shows configured runtimes, but a toolkit that was there when Docker started works without one.
    """
    try:
        docker_once.run_once(engine, reference, [], entrypoint=["true"], gpu_ids=ids)
    except OutsideError as error:
        if NO_DEVICE_DRIVER not in str(error):
            raise
        raise PrerequisiteError(
            "driver and container toolkit are there, but Docker does not use the toolkit",
            where=f"Docker host {engine.host}: {error.where}",
            hint=f"{CONFIGURE} (the restart ends running containers)",
        ) from error


def _counted(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"
