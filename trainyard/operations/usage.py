"""Ask a cluster which resources are in use, and which runs are active."""

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

# At most this many active runs are asked for details: people would not read a longer table.
_MOST_RUNS = 50


@dataclass(frozen=True)
class RunNow:
    """An active run, or another active Ray job (`job` is None).

    Other values are None if unknown; `running` and `waiting` count tasks.
    """

    run: str
    job: str | None
    user: str | None
    running: int | None
    waiting: int | None
    seconds: float | None


@dataclass(frozen=True)
class Usage:
    """The resources of each node, by its name, and the active runs.

    The two Amounts of a node are (used, free). `runs` is None if the cluster
    does not answer. `last_end` is when the last job ended, in Unix seconds; 0
    if no job has ended.
    """

    nodes: Mapping[str, tuple[Amounts, Amounts]] = field(default_factory=dict)
    runs: tuple[RunNow, ...] | None = None
    last_end: float = 0.0


def ask(now: ClusterStatus, *, has_ended: Callable[[str], bool] = lambda run: False) -> Usage:
    """Return the usage, empty if the cluster is down or does not answer.

    `has_ended` says whether a run is recorded as ended, because Ray lists its
    job as running for a moment longer.
    """
    if now.address is None or not any(node.state == "up" for node in now.nodes):
        return Usage()

    try:
        with (
            RayApi(now.address, now.token, answer_seconds=ANSWER_SECONDS) as ray,
            ThreadPoolExecutor(8) as threads,
        ):
            nodes = threads.submit(ray.usage)
            jobs = ray.jobs()
            running = without_drivers_of_runs(job for job in jobs if not job.ended)
            active = [job for job in running if not has_ended(_name(job))][:_MOST_RUNS]
            runs = tuple(threads.map(lambda job: _run(ray, job), active))
            last_end = max((job.end or 0.0 for job in jobs), default=0.0)
            return Usage(nodes.result(), runs, last_end)
    except OutsideError:
        return Usage()


def ends_at(now: ClusterStatus, usage: Usage) -> float | None:
    """Return the Unix time when the leash will end the cluster; None if never.

    The leash ends a cluster at a deadline, or after an idle time. The cluster
    is idle only while it has no active runs.
    """
    current = now.leash
    if current is None or current.problem:
        return None
    idle_since = None
    if usage.runs == () and current.since is not None:
        idle_since = max(current.since, usage.last_end)
    return leash.ends_at(current.deadline, current.idle, idle_since)


def total(amounts: Iterable[Amounts]) -> Amounts:
    nodes = list(amounts)
    cpus = sum(node.cpus for node in nodes)
    gpus = sum(node.gpus for node in nodes)
    return Amounts(round(cpus, 4), round(gpus, 4), sum(node.memory for node in nodes))


def _run(ray: RayApi, job: Job) -> RunNow:
    running, waiting = _tasks(ray, job)
    seconds = round(max(0.0, time.time() - job.start), 1) if job.start else None
    return RunNow(
        _name(job),
        job=job.metadata.get("trainyard_job"),
        user=job.metadata.get("trainyard_by"),
        running=running,
        waiting=waiting,
        seconds=seconds,
    )


def _name(job: Job) -> str:
    if job.belongs_to:
        return job.belongs_to.run
    return job.submission_id or f"Ray job {job.driver}"


def _tasks(ray: RayApi, job: Job) -> tuple[int | None, int | None]:
    """Count a run's running and waiting tasks, from its runner's file.

    Returns (None, None) if the job is not a run, or if the file cannot be read.
    """
    if "trainyard_run" not in job.metadata or job.node_id is None:
        return None, None
    try:
        with ray.file(job.node_id, names.holdings(job.submission_id)) as chunks:
            counts = json.loads(b"".join(chunks))["tasks"]
        return int(counts["running"]), int(counts["waiting"])
    except (OutsideError, ValueError, TypeError, LookupError):
        return None, None
