"""The bed's own Helm chart of the KubeRay operator: as a directory, and as a Helm repository."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.bed import programs
from tests.bed.places import HERE, run

NAME = "kuberay-operator"


def write(directory: Path) -> None:
    """Write the chart to a directory, with the CRDs that the operator's Go module contains.

    The CRDs are too large to be kept in this repository.
    """
    shutil.copytree(HERE / "chart" / NAME, directory, dirs_exist_ok=True)
    shutil.copytree(programs.kuberay_crds(), directory / "crds", dirs_exist_ok=True)


@contextmanager
def repository(directory: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """Serve the packaged chart and its index on this machine; give the repository's URL."""
    with tempfile.TemporaryDirectory() as served:
        quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=served))
        url = f"http://127.0.0.1:{server.server_port}"
        env = {**os.environ, **environ}
        run(["helm", "package", str(directory), "--destination", served], env=env)
        run(["helm", "repo", "index", served, "--url", url], env=env)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()

        try:
            yield url
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
