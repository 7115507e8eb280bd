"""Bring a run to the cluster: upload what is not there yet, then submit one Ray job."""

from __future__ import annotations

import getpass
import platform
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainyard_runner import bootstrap

from trainyard.dispatch.package import Package, blob_name
from trainyard.errors import OutsideError
from trainyard.seams.ray_api import RayApi, UnreachableError

# Ray's answer for some seconds after a cluster came up (field-notes.md, section 6); nothing was started then.
_NOT_YET = "No available agent to submit job"
_SUBMIT_SECONDS = 30.0

# (bytes sent so far, bytes to send)
Upload = Callable[[int, int], None]


@dataclass(frozen=True)
class Cargo:
    """A package and what a person would call it."""

    title: str
    package: Package


def missing_bytes(ray: RayApi, package: Package) -> int:
    """Return how much of a package the cluster does not hold yet."""
    return sum(package.part_size(index) for index in _missing(ray, package))


def upload(ray: RayApi, cargo: Cargo, *, shown: Upload) -> None:
    """Send the parts that the cluster does not hold yet."""
    package = cargo.package
    missing = _missing(ray, package)
    total = sum(package.part_size(index) for index in missing)
    sent = 0
    for index in missing:
        blocks = _counted(package.read(index), sent, total, shown)
        ray.put_package(package.parts[index], blocks, size=package.part_size(index))
        sent += package.part_size(index)


def submit(ray: RayApi, run: str, plan: bytes, *, runner: str, job: str) -> None:
    """Submit one Ray job that runs the plan; `runner` is the name of the uploaded runner package."""
    plan_name = blob_name(plan)
    # Whoever would end it is told whose it is.
    by = f"{getpass.getuser()}@{platform.node()}"
    metadata = {"trainyard_run": run, "trainyard_job": job, "trainyard_by": by}
    ray.put_package(plan_name, [plan], size=len(plan))
    command = "exec " + shlex.join(bootstrap.argv(run, runner=runner, plan=plan_name))
    give_up = time.monotonic() + _SUBMIT_SECONDS
    while True:
        try:
            return ray.submit(command, submission_id=run, metadata=metadata)
        except UnreachableError:
            # The answer was lost; the request may have arrived. Sending it twice is refused by its submission id.
            if ray.job(run):
                return None
            raise
        except OutsideError as error:
            if _NOT_YET not in error.what or time.monotonic() > give_up:
                raise
            time.sleep(0.5)


def _missing(ray: RayApi, package: Package) -> list[int]:
    return [index for index, name in enumerate(package.parts) if not ray.has_package(name)]


def _counted(blocks: Iterator[bytes], sent: int, total: int, shown: Upload) -> Iterator[bytes]:
    for block in blocks:
        yield block
        sent += len(block)
        shown(sent, total)
