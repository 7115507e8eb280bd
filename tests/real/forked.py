"""The command line as a forked process: most of a short command's CPU time would be imports.

It is forked from a process that has imported everything: 1.0 s of CPU for `cluster.plan` on
Kubernetes become 0.3 s. Tests of imports, signals or pipes start the installed command.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from pathlib import Path

FORKING = get_context("forkserver")
FORKING.set_forkserver_preload(["tests.real.imported"])
# Starting a process also asks all earlier ones for their exit codes. A code can be read only once:
# a second reader gets 255.
EXIT_CODES = threading.Lock()


def run(
    command: Sequence[str], *, directory: Path, environ: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Do what `subprocess.run` does with both outputs captured and no standard input."""
    pipes = [FORKING.Pipe(duplex=False) for _ in range(2)]
    given = (list(command), str(directory), dict(environ), *(writing for _, writing in pipes))
    process = FORKING.Process(target=_become, args=given)

    with EXIT_CODES:
        process.start()

    for _, writing in pipes:
        writing.close()

    said = {reading: b"" for reading, _ in pipes}
    try:
        if not _read(said, seconds):
            raise subprocess.TimeoutExpired(command, seconds)
        with EXIT_CODES:
            process.join()
    finally:
        process.kill()

    return subprocess.CompletedProcess(
        command, process.exitcode or 0, *(text.decode() for text in said.values())
    )


def _read(said: dict[Connection, bytes], seconds: float) -> bool:
    """Read all until both are closed; return whether that was in time."""
    give_up, left = time.monotonic() + seconds, set(said)
    while left:
        ready = connection.wait(list(left), max(give_up - time.monotonic(), 0))
        if not ready:
            return False
        for reading in said.keys() & set(ready):
            part = os.read(reading.fileno(), 1 << 16)
            said[reading] += part
            if not part:
                left.remove(reading)
    return True


def _become(
    command: list[str],
    directory: str,
    environ: dict[str, str],
    stdout: Connection,
    stderr: Connection,
) -> None:
    """Run the command line in this process."""
    os.dup2(stdout.fileno(), 1)
    os.dup2(stderr.fileno(), 2)
    stdout.close()
    stderr.close()
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv, sys.path[0] = command, str(Path(command[0]).parent)

    from trainyard.main import main

    main()
