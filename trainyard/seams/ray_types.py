"""Answers of Ray's REST API, as frozen records."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainyard_runner.wire.driver import Driver

# Ray's job states (ray/dashboard/modules/job/common.py, JobStatus).
ENDED_STATES = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})

# ray/autoscaler/_private/util.py, parse_usage and format_memory
_USAGE = re.compile(
    r"^([\d.]+\w*)/([\d.]+\w*) (CPU|GPU|memory)(?: \(([\d.]+\w*) used of ([\d.]+\w*) reserved.*)?$",
    re.M,
)
_UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


# Resources that have fields of their own.
_AMOUNTS = ("CPU", "GPU", "memory")


@dataclass(frozen=True)
class Amounts:
    """Amounts of Ray's resources; memory is in bytes."""

    cpus: float
    gpus: float
    memory: int


@dataclass(frozen=True)
class Node:
    """A Ray node.

    `group` is the label ray.io/node-group; `custom` has the other resources.
    `memory` is in bytes. `started` is when the node joined, in Unix seconds;
    None if unknown.
    """

    node_id: str
    name: str
    ip: str
    is_head: bool
    alive: bool
    cpus: float
    gpus: float
    labels: Mapping[str, str] = field(default_factory=dict)
    started: float | None = None
    memory: float = 0.0
    custom: Mapping[str, float] = field(default_factory=dict)

    @property
    def group(self) -> str | None:
        return self.labels.get("ray.io/node-group")


@dataclass(frozen=True)
class Job:
    """A job, or a driver that connected by itself.

    Such a driver has the number `driver`, and no `submission_id`. `node_id` is
    the node of a submitted job's own process, once placed. `start` and `end`
    are when Ray noticed the job's start and end, in Unix seconds.
    """

    submission_id: str
    status: str
    message: str
    node_id: str | None
    exit_code: int | None
    metadata: Mapping[str, str]
    end: float | None = None
    start: float | None = None
    driver: str = ""

    @property
    def ended(self) -> bool:
        """Say whether Ray reports the job's own process as gone."""
        return self.status in ENDED_STATES

    @property
    def belongs_to(self) -> Driver | None:
        """Return the attempt whose command is this driver; None for others."""
        if self.submission_id:
            return None
        return Driver.of(self.metadata)


def without_drivers_of_runs(jobs: Iterable[Job]) -> list[Job]:
    """Leave out the drivers that tasks of other listed jobs started."""
    all_jobs = list(jobs)
    runs = {job.submission_id for job in all_jobs}

    kept = []
    for job in all_jobs:
        attempt = job.belongs_to
        if attempt is None or attempt.run not in runs:
            kept.append(job)
    return kept


def version_from(answer: Any) -> str:
    """Read /api/version.

    This and all readers below raise TypeError, LookupError or AttributeError
    for an unknown answer.
    """
    return _text(answer["ray_version"])


def nodes_from(answer: Any) -> tuple[Node, ...]:
    return tuple(node_from(row) for row in answer["data"]["result"]["result"])


def host_names_from(answer: Any) -> dict[str, str]:
    """Read the host names in /nodes?view=summary, by node id.

    The name of a node that has just joined may be "".
    """
    names = {}
    for row in answer["data"]["summary"]:
        raylet = row["raylet"]
        if raylet.get("nodeId"):
            names[_text(raylet["nodeId"])] = _text(raylet.get("nodeManagerHostname") or "")
    return names


def node_from(row: Mapping[str, Any]) -> Node:
    """Read one row of /api/v0/nodes."""
    resources = row.get("resources_total") or {}
    return Node(
        node_id=_text(row["node_id"]),
        name=_text(row.get("node_name") or row.get("node_ip") or row["node_id"]),
        ip=_text(row.get("node_ip") or ""),
        is_head=bool(row.get("is_head_node")),
        alive=row.get("state") == "ALIVE",
        cpus=_number(resources.get("CPU", 0)),
        gpus=_number(resources.get("GPU", 0)),
        labels={_text(key): _text(value) for key, value in (row.get("labels") or {}).items()},
        # Ray counts in milliseconds.
        started=_number(row.get("start_time_ms") or 0) / 1000 or None,
        memory=_number(resources.get("memory", 0)),
        custom={
            _text(name): _number(value) for name, value in resources.items() if name not in _AMOUNTS
        },
    )


def job_from(row: Mapping[str, Any]) -> Job:
    """Read one job of /api/jobs/."""
    exit_code = None
    if row.get("driver_exit_code") is not None:
        exit_code = int(_number(row["driver_exit_code"]))

    return Job(
        submission_id=_text(row.get("submission_id") or ""),
        status=_text(row["status"]),
        message=_text(row.get("message") or ""),
        node_id=_text(row.get("driver_node_id") or "") or None,
        exit_code=exit_code,
        metadata={_text(key): _text(value) for key, value in (row.get("metadata") or {}).items()},
        # Ray counts in milliseconds (JobDetails.end_time).
        end=_number(row.get("end_time") or 0) / 1000 or None,
        start=_number(row.get("start_time") or 0) / 1000 or None,
        driver=_text(row.get("job_id") or ""),
    )


def left_from(key: str, drivers: Collection[str]) -> Callable[[Any], int]:
    """Return a reader of /api/v0 that counts the detached objects of `drivers`.

    `key` is the object's field that names its driver.
    """

    def count(answer: Any) -> int:
        rows = answer["data"]["result"]["result"]
        return sum(bool(row.get("is_detached")) and row.get(key) in drivers for row in rows)

    return count


def usage_from(answer: Any) -> dict[str, tuple[Amounts, Amounts]]:
    """Read each node's used and free amounts in /nodes?view=summary, by name.

    A node without resources in the answer is left out.
    """
    resources = answer["data"]["nodeLogicalResources"]
    usage = {}
    for row in answer["data"]["summary"]:
        raylet = row["raylet"]
        if raylet["nodeId"] in resources:
            usage[_text(raylet["nodeName"])] = _used_and_free(resources[raylet["nodeId"]])
    return usage


def _used_and_free(text: str) -> tuple[Amounts, Amounts]:
    """Read lines such as "1.0/2.0 CPU".

    Another form is "0B/1.00GiB memory (0B used of 1.00GiB reserved in ...)".
    """
    used = {}
    free = {}
    for line in _USAGE.finditer(text):
        resource = line[3]
        reserved_but_idle = _amount(line[5] or "0") - _amount(line[4] or "0")
        # Ray counts reserved idle resources as free, but only their owner can use them.
        used[resource] = _amount(line[1]) + reserved_but_idle
        free[resource] = max(0.0, _amount(line[2]) - used[resource])
    return _amounts(used), _amounts(free)


def _amounts(amounts: Mapping[str, float]) -> Amounts:
    return Amounts(
        round(amounts.get("CPU", 0.0), 4),
        round(amounts.get("GPU", 0.0), 4),
        round(amounts.get("memory", 0.0)),
    )


def _amount(written: str) -> float:
    value = written.rstrip("KMGTiB")
    unit = written.lstrip("0123456789.")
    return float(value) * _UNITS[unit]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _number(value: object) -> float:
    # Rejects NaN, and amounts that no machine has.
    if not isinstance(value, (int, float)) or not -1e15 < value < 1e15:
        raise TypeError(f"{value!r} is no number")
    return value
