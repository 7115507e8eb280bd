"""Bring a run to the cluster: upload what is not there yet, then submit one Ray job."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trainyard_runner import bootstrap

from trainyard.dispatch.package import Package, blob_name
from trainyard.dispatch.sending import runner_package
from trainyard.errors import OutsideError
from trainyard.seams.ray_api import RayApi, UnreachableError

# Ray's answer for some seconds after a cluster came up (field-notes.md, section 6); nothing was started then.
_NOT_YET = "No available agent to submit job"
_SUBMIT_SECONDS = 30.0

# (what is sent, bytes so far, bytes in all)
Upload = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Cargo:
    """A package and what a person would call it."""

    title: str
    package: Package


def launch(ray: RayApi, run: str, plan: bytes, *, job: str, cargo: Sequence[Cargo] = (), shown: Upload) -> None:
    """Upload and submit. When this returns, the run goes on without us.

    A smoke test is a launch without cargo, whose plan has no tasks.
    """
    runner = runner_package()
    for one in (Cargo("runner", runner), *cargo):
        upload(ray, one, shown=shown)
    plan_name = blob_name(plan)
    ray.put_package(plan_name, [plan], size=len(plan))
    command = bootstrap.argv(run, runner=runner.parts[0], plan=plan_name)
    _submit(ray, run, "exec " + shlex.join(command), job=job)


def upload(ray: RayApi, cargo: Cargo, *, shown: Upload) -> None:
    """Send the parts that the cluster does not hold yet."""
    package = cargo.package
    missing = [index for index, name in enumerate(package.parts) if not ray.has_package(name)]
    total = sum(package.part_size(index) for index in missing)
    sent = 0
    for index in missing:
        blocks = _counted(package.read(index), cargo.title, sent, total, shown)
        ray.put_package(package.parts[index], blocks, size=package.part_size(index))
        sent += package.part_size(index)


def _counted(blocks: Iterator[bytes], title: str, sent: int, total: int, shown: Upload) -> Iterator[bytes]:
    for block in blocks:
        yield block
        sent += len(block)
        shown(title, sent, total)


def _submit(ray: RayApi, run: str, entrypoint: str, *, job: str) -> None:
    give_up = time.monotonic() + _SUBMIT_SECONDS
    while True:
        try:
            return ray.submit(entrypoint, submission_id=run, metadata={"trainyard_run": run, "trainyard_job": job})
        except UnreachableError:
            # The answer was lost; the request may have arrived. Sending it twice is refused by its submission id.
            if ray.job(run):
                return None
            raise
        except OutsideError as error:
            if _NOT_YET not in error.what or time.monotonic() > give_up:
                raise
            time.sleep(0.5)
