"""What a Docker host says about its GPUs and about what gives them to containers: asked here, or over SSH."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from trainyard.seams import programs
from trainyard.seams.docker_engine import Engine

# nvidia-smi takes seconds where the driver's persistence mode is off.
SECONDS = 40.0
# Of NVIDIA's container toolkit, oldest name last: any of them means that it is installed.
TOOLKIT = ("nvidia-ctk", "nvidia-container-runtime-hook", "nvidia-container-toolkit", "nvidia-container-cli")


@dataclass(frozen=True)
class GpuFacts:
    """What the host answered. `seen` is what nvidia-smi said, if it listed no GPU."""

    gpu_ids: tuple[str, ...]
    toolkit: str | None
    seen: str


def look(engine: Engine) -> GpuFacts:
    """Ask the engine's host which GPUs it has, and for NVIDIA's container toolkit."""
    asked = _run(engine, ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"])
    ids = tuple(line.strip() for line in asked.tail if line.strip().isdigit()) if asked.code == 0 else ()
    listed = " ".join(TOOLKIT)
    # /sbin and its like are not on every user's PATH over SSH.
    found = _run(engine, ["sh", "-c", f'PATH="$PATH:/usr/sbin:/usr/local/sbin"; command -v {listed} | head -n 1'])
    toolkit = found.tail[0].strip() if found.code == 0 and found.tail else None
    return GpuFacts(ids, toolkit, "" if ids else _said(asked))


def _said(asked: programs.Ended) -> str:
    """Return the first thing that nvidia-smi said."""
    if asked.code == programs.NOT_FOUND:
        return "nvidia-smi is not installed"
    return next((line.strip() for line in asked.tail if line.strip()), "")


def _run(engine: Engine, command: Sequence[str]) -> programs.Ended:
    if engine.ssh is None:
        return programs.run(command, env=engine.environ, seconds=SECONDS)
    return programs.run(["ssh", *_destination(engine.ssh), _quoted(command)], env=engine.environ, seconds=SECONDS)


def _destination(address: str) -> list[str]:
    parts = urlsplit(address)
    user = f"{parts.username}@" if parts.username else ""
    port = ["-p", str(parts.port)] if parts.port else []
    return ["-o", "BatchMode=yes", *port, "--", f"{user}{parts.hostname}"]


def _quoted(command: Sequence[str]) -> str:
    """Return the command as the shell of the other side reads it: SSH joins its words with spaces."""
    return shlex.join(command)
