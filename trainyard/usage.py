"""What is in use on a cluster that answers, and which runs go on there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from trainyard_runner import names

from trainyard.backends.contract import ClusterStatus
from trainyard.backends.ray_nodes import ANSWER_SECONDS
from trainyard.errors import OutsideError
from trainyard.seams.ray_api import RayApi
from trainyard.seams.ray_types import Amounts, Job

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
    """What is in use and what is free, by the name of each node, and who uses it."""

    nodes: Mapping[str, tuple[Amounts, Amounts]]
    runs: tuple[RunNow, ...]


def ask(now: ClusterStatus) -> Usage | None:
    """Ask a cluster of which nodes answer what is in use there; None if it does not say."""
    if now.address is None or not any(node.state == "up" for node in now.nodes):
        return None
    try:
        with RayApi(now.address, now.token, answer_seconds=ANSWER_SECONDS) as ray, ThreadPoolExecutor(8) as threads:
            nodes = threads.submit(ray.usage)
            going = [job for job in ray.jobs() if not job.ended]
            going = going[:_MOST_RUNS]
            said = list(zip(going, threads.map(lambda job: _holdings(ray, job), going), strict=True))
            runs = tuple(_run(job, holdings) for job, holdings in said)
            return Usage(at_least(nodes.result(), [holdings.nodes for _, holdings in said]), runs)
    except OutsideError:
        return None


def total(amounts: Iterable[Amounts]) -> Amounts:
    cpus, gpus, memory = zip(*((one.cpus, one.gpus, one.memory) for one in amounts), strict=True)
    return Amounts(round(sum(cpus), 4), round(sum(gpus), 4), sum(memory))


def at_least(
    nodes: Mapping[str, tuple[Amounts, Amounts]], held: Sequence[Mapping[str, Amounts]]
) -> dict[str, tuple[Amounts, Amounts]]:
    """Return what is used and free on nodes, where no less is used than runs hold: Ray's figures lag by seconds."""
    found = dict(nodes)
    for name, (used, free) in nodes.items():
        mine = [run[name] for run in held if name in run]
        if mine:
            whole, holds = total([used, free]), total(mine)
            now = Amounts(max(used.cpus, holds.cpus), max(used.gpus, holds.gpus), max(used.memory, holds.memory))
            cpus, gpus = (max(0.0, round(left, 4)) for left in (whole.cpus - now.cpus, whole.gpus - now.gpus))
            found[name] = (now, Amounts(cpus, gpus, max(0, whole.memory - now.memory)))
    return found


@dataclass(frozen=True)
class _Holdings:
    """What a run's runner wrote down a moment ago: its tasks, and what they hold by node."""

    running: int | None = None
    waiting: int | None = None
    nodes: Mapping[str, Amounts] = field(default_factory=dict)


def _run(job: Job, holdings: _Holdings) -> RunNow:
    return RunNow(
        job.submission_id or f"Ray job {job.driver}",
        job.metadata.get("trainyard_job"),
        job.metadata.get("trainyard_by"),
        holdings.running,
        holdings.waiting,
        round(max(0.0, time.time() - job.start), 1) if job.start else None,
    )


def _holdings(ray: RayApi, job: Job) -> _Holdings:
    if "trainyard_run" not in job.metadata or job.node_id is None:
        return _Holdings()
    try:
        with ray.file(job.node_id, names.holdings(job.submission_id)) as chunks:
            found = json.loads(b"".join(chunks))
        nodes = {
            str(node): Amounts(float(here["CPU"]), float(here["GPU"]), round(here["memory"]))
            for node, here in found["nodes"].items()
        }
        return _Holdings(int(found["tasks"]["running"]), int(found["tasks"]["waiting"]), nodes)
    except (OutsideError, ValueError, TypeError, LookupError, AttributeError):
        return _Holdings()
