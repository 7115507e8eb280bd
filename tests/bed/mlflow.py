"""A real MLflow in an environment of its own.

It takes half a gigabyte, and is installed once for all checkouts (10 s).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.bed.places import CACHE, free_port, locked, run

VERSION = "3.17.2"
_HOME = CACHE / "programs" / f"mlflow-{VERSION}-python{sys.version_info[0]}.{sys.version_info[1]}"


def python() -> Path:
    """Return the path of a Python that has MLflow; install it if it is missing."""
    found = _HOME / "bin" / "python"
    with locked("mlflow"):
        if not (_HOME / "installed").exists():
            uv = str(Path(sys.executable).with_name("uv"))
            run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(_HOME)])
            run([uv, "pip", "install", "--quiet", "--python", str(found), f"mlflow=={VERSION}"])
            (_HOME / "installed").touch()
    return found


@contextmanager
def server(home: Path) -> Iterator[tuple[str, Path]]:
    """Give a tracking server's address, and the SQLite file that it writes.

    The server may still be starting.
    """
    port, database = free_port(), home / "server.db"
    options = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command = [
        str(python()),
        "-m",
        "mlflow",
        "server",
        *options,
        "--backend-store-uri",
        f"sqlite:///{database}",
    ]

    with (home / "server.log").open("wb") as log:
        # Avoids seven processes that would outlive the server: they run jobs that no test requests.
        environ = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        process = psutil.Popen(command, cwd=home, stdout=log, stderr=log, env=environ)

    try:
        yield f"http://127.0.0.1:{port}", database
    finally:
        # A regular end of the server would wait for its child processes.
        for started in [*process.children(recursive=True), process]:
            started.kill()
        process.wait()
