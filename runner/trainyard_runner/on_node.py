"""The first lines of an attempt on its node: where it is, which GPUs it got, what the attempt before left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray

from trainyard_runner.attempt import Attempt, Batch
from trainyard_runner.workspace import Order


def attempt(order: Order, package: Path | None) -> Iterator[Batch]:
    """Run one attempt with what Ray gave this worker."""
    worker = ray._private.worker.global_worker
    home = Path(worker.node.get_session_dir_path(), "trainyard")
    node = {"node_id": ray.get_runtime_context().get_node_id()}
    gpus = [str(gpu) for gpu in ray.get_gpu_ids()] if order["gpus"] else []
    order = {**order, "ray_address": worker.gcs_client.address}
    run = Attempt(order, home=home, package=package, gpus=gpus, node=node)
    yield from run.run(_parts)


def _parts(references: list[Any]) -> Iterator[bytes]:
    """Fetch an archive part by part, so that it is never in memory as a whole."""
    for reference in references:
        yield ray.get(reference)
