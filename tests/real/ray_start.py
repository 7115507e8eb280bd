"""A head started by plain `ray start`, without Trainyard."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from trainyard.seams import processes


@contextmanager
def head(
    temp: Path, variables: Mapping[str, str], *, cpus: int
) -> Iterator[tuple[str, processes.ProcessId]]:
    """Give a head's dashboard address and leading process; `temp` must be a short path.

    Afterwards the head's own processes are ended.
    """
    gcs, dashboard, client = processes.free_ports(3)
    programs = Path(sys.executable).parent
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    environment |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", **variables}
    environment["PATH"] = f"{programs}:{environment['PATH']}"
    command = [str(programs / "ray"), "start", "--head", f"--port={gcs}", f"--num-cpus={cpus}"]
    command += [
        f"--dashboard-port={dashboard}",
        f"--ray-client-server-port={client}",
        f"--temp-dir={temp}",
    ]

    command += [
        "--dashboard-agent-listen-port=0",
        "--object-store-memory=100000000",
        "--disable-usage-stats",
    ]

    child = subprocess.Popen(
        command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL
    )
    leader = processes.ProcessId(child.pid, "")

    try:
        assert child.wait(timeout=90) == 0
        yield f"http://127.0.0.1:{dashboard}", leader
    finally:
        processes.end(lambda: processes.members([leader]), grace=1.0, deadline=10.0)
        shutil.rmtree(temp, ignore_errors=True)
