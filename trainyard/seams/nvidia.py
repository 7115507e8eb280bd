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
FIND = 'PATH="$PATH:/usr/sbin:/usr/local/sbin"; for one in "$@"; do command -v "$one" && exit; done; exit 1'


@dataclass(frozen=True)
class GpuFacts:
    """What the host answered. `detail` is what nvidia-smi printed, if it listed no GPU."""

    gpu_ids: tuple[str, ...]
    toolkit: str | None
    detail: str


def look(engine: Engine) -> GpuFacts:
    """Ask the engine's host which GPUs it has, and for NVIDIA's container toolkit."""
    ran = _run(engine, ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"])
    ids = tuple(line.strip() for line in ran.tail if line.strip().isdigit()) if ran.code == 0 else ()
    found = _run(engine, ["sh", "-c", FIND, "sh", *TOOLKIT])
    toolkit = found.tail[0].strip() if found.code == 0 and found.tail else None
    return GpuFacts(ids, toolkit, "" if ids else _first_line(ran))


def _first_line(ran: programs.Ended) -> str:
    if ran.code == programs.NOT_FOUND:
        return "nvidia-smi is not installed"
    return next((line.strip() for line in ran.tail if line.strip()), "")


def _run(engine: Engine, command: Sequence[str]) -> programs.Ended:
    if engine.ssh is None:
        return programs.run(command, env=engine.environ, seconds=SECONDS)
    ran = connect(engine.ssh, engine.environ).run(command, seconds=SECONDS)
    return programs.Ended(ran.code, tuple((ran.stdout + ran.stderr).splitlines()))
