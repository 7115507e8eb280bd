"""What a Docker host says about its GPUs and about what gives them to containers: asked here, or over SSH."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.seams import programs
from trainyard.seams.docker.engine import Engine
from trainyard.seams.ssh.connection import connect

# nvidia-smi takes seconds where the driver's persistence mode is off.
SECONDS = 40.0
# Of NVIDIA's container toolkit, oldest name last: any of them means that it is installed.
TOOLKIT = ("nvidia-ctk", "nvidia-container-runtime-hook", "nvidia-container-toolkit", "nvidia-container-cli")
# dash's `command -v` looks at its first word only; /sbin and its like are not on every user's PATH over SSH.
FIND = 'PATH="$PATH:/usr/sbin:/usr/local/sbin"; for name in "$@"; do command -v "$name" && exit; done; exit 1'


@dataclass(frozen=True)
class GpuFacts:
    """What the host answered. `detail` is what nvidia-smi printed, if it listed no GPU."""

    gpu_ids: tuple[str, ...]
    toolkit: str | None
    detail: str


def look(engine: Engine) -> GpuFacts:
    """Ask the engine's host which GPUs it has, and for NVIDIA's container toolkit."""
    driver = _run(engine, ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"])
    ids = tuple(filter(str.isdigit, driver.tail)) if driver.code == 0 else ()
    toolkit = _run(engine, ["sh", "-c", FIND, "sh", *TOOLKIT])
    detail = "nvidia-smi is not installed" if driver.code == programs.NOT_FOUND else " ".join(driver.tail[:1])
    return GpuFacts(ids, toolkit.tail[0] if toolkit.code == 0 else None, "" if ids else detail)


def _run(engine: Engine, command: Sequence[str]) -> programs.Ended:
    if engine.ssh is None:
        return programs.run(command, env=engine.environ, seconds=SECONDS)
    ran = connect(engine.ssh, engine.environ).run(command, seconds=SECONDS)
    return programs.Ended(ran.code, tuple((ran.stdout + ran.stderr).splitlines()))
