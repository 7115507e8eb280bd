"""The GPUs of a Docker host, as nvidia-smi lists them here or over SSH."""

from __future__ import annotations

from trainyard.seams import programs
from trainyard.seams.docker.engine import Engine
from trainyard.seams.ssh.connection import connect

# nvidia-smi takes seconds if the driver's persistence mode is off.
SECONDS = 40.0
COMMAND = ("nvidia-smi", "--query-gpu=index", "--format=csv,noheader")


def gpu_ids(engine: Engine) -> tuple[str, ...]:
    """Return the indices of the host's GPUs; none without a working driver."""
    if engine.ssh is None:
        here = programs.run(COMMAND, env=engine.environ, seconds=SECONDS)
        code = here.code
        lines = here.tail
    else:
        there = connect(engine.ssh, engine.environ).run(COMMAND, seconds=SECONDS)
        code = there.code
        lines = tuple(there.stdout.splitlines())
    if code == 0:
        return tuple(filter(str.isdigit, lines))
    return ()
