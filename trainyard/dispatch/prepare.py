"""A job that may be sent: it fits its cluster, and what travels is known, also in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.dispatch import sending
from trainyard.dispatch.fits import check_fits
from trainyard.dispatch.package import LeftOut, sized
from trainyard.dispatch.sending import Sending
from trainyard.spec import JobSpec, LoadedCluster, TaskSpec, expand

_NAMED = 6


@dataclass(frozen=True)
class Prepared:
    """A job and the cluster it is meant for, checked against each other; nothing has been sent."""

    cluster: LoadedCluster
    job: JobSpec
    tasks: tuple[TaskSpec, ...]
    sending: Sending


def prepare(cluster: LoadedCluster, job: JobSpec, directory: Path) -> Prepared:
    """Check a job against its cluster and list what would be sent. Raises RequestError."""
    tasks = expand(job)
    check_fits(cluster.spec, job, tasks)
    return Prepared(cluster, job, tasks, sending.of_job(directory, job))


def described(prepared: Prepared) -> Iterator[str]:
    """Yield lines that say what is sent, how much it is, and what stays here because of which ignore file."""
    count = len(prepared.tasks)
    yield f"job {prepared.job.name} on cluster {prepared.cluster.spec.name}: {count} task{'s' * (count != 1)}"
    listed = prepared.sending.job
    yield f"sends {len(listed.files)} file{'s' * (len(listed.files) != 1)}, {sized(listed.size)}"
    for file in listed.big[:_NAMED]:
        yield f"  big: {file.name}, {sized(file.size)}"
    if prepared.sending.wheels:
        wheels = prepared.sending.wheels
        yield f"sends {len(wheels.files)} wheel{'s' * (len(wheels.files) != 1)}, {sized(wheels.size)}"
    if listed.left_out:
        yield f"left out: {_left_out(listed.left_out)}"


def _left_out(left_out: Sequence[LeftOut]) -> str:
    named = ", ".join(f"{one.name} ({one.by})" for one in left_out[:_NAMED])
    more = len(left_out) - _NAMED
    return f"{named} and {more} more" if more > 0 else named
