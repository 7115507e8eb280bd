"""Runs attempts on their node, one after another in one Ray task.

A Ray task takes as much time as a quick command, and so does a yield. Quick
attempts therefore share one Ray task and one yield. A longer attempt is the
last one of its Ray task: the remaining attempts return to the head, which
submits them again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import ray

from trainyard_runner.node.attempt import Attempt, Batch
from trainyard_runner.node.job_files import JobFiles
from trainyard_runner.node.workspace import Spare, attempt_id
from trainyard_runner.ray_package import OwnPackage, store
from trainyard_runner.shipped import Package
from trainyard_runner.wire.order import Order
from trainyard_runner.wire.outcome import QUICK

# (Number of an order, messages of its attempt); None returns the order to the head.
Messages = list[tuple[int, Batch | None]]


def attempts(orders: Sequence[Order], job: Package | None) -> Iterator[Messages]:
    """Run the orders' attempts in turn, and yield their messages.

    Once an attempt has run longer than QUICK, that attempt becomes the last
    one, and the remaining orders are returned.
    """
    messages: Messages = []
    sent = time.monotonic()
    count = len(orders)
    spare = Spare()
    try:
        for number, order in enumerate(orders):
            if number >= count:
                return

            began = time.monotonic()
            with contextlib.closing(_attempt(order, job, spare)) as batches:
                for batch in batches:
                    messages.append((number, batch))
                    now = time.monotonic()
                    if now - began > QUICK:
                        for later in range(number + 1, count):
                            messages.append((later, None))
                        count = number + 1

                    if number + 1 == count or batch[-1][0] != "ended" or now - sent > QUICK:
                        yield messages
                        messages = []
                        sent = time.monotonic()
    except Exception:
        if messages:
            yield messages
        raise
    finally:
        spare.close()


def _attempt(order: Order, job: Package | None, spare: Spare) -> Generator[Batch, None, None]:
    worker = ray._private.worker.global_worker
    home = Path(worker.node.get_session_dir_path(), "trainyard")
    node = ray.get_runtime_context().get_node_id()

    gpus = []
    if order["gpus"]:
        gpus = [str(gpu) for gpu in ray.get_gpu_ids()]

    files = None
    if job:
        name, references = job
        files = JobFiles(home / "packages", name, lambda: b"".join(_parts(references)))

    order = order.copy()
    order["ray_address"] = worker.gcs_client.address
    package = None
    if order["has_own_package"]:
        package = OwnPackage(order["ray_environment"], attempt_id(order), store())
        order["ray_environment"] = package.environment

    try:
        attempt = Attempt(
            order, home=home, files=files, gpus=gpus, node=node, package=package, spare=spare
        )
        yield from attempt.run(_parts)
    finally:
        if package is not None:
            package.close()


def _parts(references: list[Any]) -> Iterator[bytes]:
    """Fetch an archive's parts one by one: the whole may not fit in memory."""
    for reference in references:
        yield ray.get(reference)
