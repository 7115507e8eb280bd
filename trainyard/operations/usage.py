"""What is in use on a cluster that answers, and which runs go on there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from trainyard_runner import leash
from trainyard_runner.wire import names

from trainyard.backends.contract import ClusterStatus
from trainyard.backends.shared.ray_nodes import ANSWER_SECONDS
from trainyard.errors import OutsideError
from trainyard.seams.ray_api import RayApi
from trainyard.seams.ray_types import Amounts, Job, without_drivers_of_runs

# A table of more helps nobody.
_MOST_RUNS = 50


@dataclass(frozen=True)
class RunNow:
    """A run, or another Ray job (`job` is None), that goes on; what it has not said is None."""

    run: str
    job: str | None
    user: str | None
    running: int | None
    waiting: int | None
    seconds: float | None


@dataclass(frozen=True)
class Usage:
    """What is in use and what is free, by the name of each node, and who uses it; `runs` is None
    where nobody says.

    `last_end` is when the last job ended, in Unix seconds.
    """

    nodes: Mapping[str, tuple[Amounts, Amounts]] = field(default_factory=dict)
    runs: tuple[RunNow, ...] | None = None
    last_end: float = 0.0


def ask(now: ClusterStatus, *, has_ended: Callable[[str], bool] = lambda run: False) -> Usage:
    """Ask a cluster what is in use there, if any of its nodes answers.

    `has_ended` says whether a run is known to have ended: Ray calls its job running for a moment
    longer.
    """
    if now.address is None or not any(node.state == "up" for node in now.nodes):
        return Usage()

    try:
        with (
            RayApi(now.address, now.token, answer_seconds=ANSWER_SECONDS) as ray,
            ThreadPoolExecutor(8) as threads,
        ):
            nodes = threads.submit(ray.usage)
            every = ray.jobs()
            active = without_drivers_of_runs(job for job in every if not job.ended)
            jobs = [job for job in active if not has_ended(_name(job))][:_MOST_RUNS]
            last_end = max((job.end or 0.0 for job in every), default=0.0)
            return Usage(
                nodes.result(), tuple(threads.map(lambda job: _run(ray, job), jobs)), last_end
            )
    except OutsideError:
        return Usage()


def ends_at(now: ClusterStatus, usage: Usage) -> float | None:
    """Return when the cluster's leash ends it as things are now, in Unix seconds."""
    held = now.leash
    if held is None or held.problem:
        return None
    is_idle = usage.runs == () and held.since is not None
    return leash.ends_at(
        held.deadline, held.idle, max(held.since or 0.0, usage.last_end) if is_idle else None
    )


def total(amounts: Iterable[Amounts]) -> Amounts:
    cpus, gpus, memory = zip(
        *((amount.cpus, amount.gpus, amount.memory) for amount in amounts), strict=True
    )
    return Amounts(round(sum(cpus), 4), round(sum(gpus), 4), sum(memory))


def _run(ray: RayApi, job: Job) -> RunNow:
    running, waiting = _tasks(ray, job)
    return RunNow(
        _name(job),
        job.metadata.get("trainyard_job"),
        job.metadata.get("trainyard_by"),
        running,
        waiting,
        round(max(0.0, time.time() - job.start), 1) if job.start else None,
    )


def _name(job: Job) -> str:
    """Return the run that a job is, or that a task's driver is left of; of any other driver its
    number.
    """
    if job.belongs_to:
        return job.belongs_to.run
    return job.submission_id or f"Ray job {job.driver}"


def _tasks(ray: RayApi, job: Job) -> tuple[int | None, int | None]:
    """Return how many tasks of a run are running and waiting, as its runner wrote down a moment
    ago.
    """
    if "trainyard_run" not in job.metadata or job.node_id is None:
        return None, None
    try:
        with ray.file(job.node_id, names.holdings(job.submission_id)) as chunks:
            counts = json.loads(b"".join(chunks))["tasks"]
        return int(counts["running"]), int(counts["waiting"])
    except (OutsideError, ValueError, TypeError, LookupError):
        return None, None
