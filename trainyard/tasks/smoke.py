"""Prove that a cluster can train."""

from __future__ import annotations

import os
from pathlib import Path

from invoke.context import Context

from trainyard.tasks.cluster import HELP
from trainyard.tasks.command import task


@task(iterable=["set_"], help=HELP)
def run(
    context: Context, file: str | None = None, set_: list[str] | None = None, backend: str = "", json: bool = False
) -> None:
    """Test nodes, versions, GPUs, isolation, transfer and space; exit 5 if something is wrong."""
    from trainyard import lifecycle, progress, smoke
    from trainyard.tasks import smoke_output as output

    cluster = lifecycle.find(file, os.environ, directory=Path.cwd(), overrides=set_ or [], backend=backend or None)
    endpoint = lifecycle.connect(cluster)
    if context.config.run.dry:
        output.planned(endpoint, json=json)
        return
    output.tested(smoke.smoke(endpoint, progress.for_stream()), json=json)
