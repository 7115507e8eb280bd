"""What Ray's REST API says, as frozen records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Ray's job states (ray/dashboard/modules/job/common.py, JobStatus).
ENDED_STATES = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})


@dataclass(frozen=True)
class Version:
    """Which Ray answers; the session changes when the cluster is made anew."""

    ray: str
    session: str


@dataclass(frozen=True)
class Node:
    """One Ray node. `group` is its label ray.io/node-group, if it has one.

    `started` is when it joined, in Unix seconds; None if Ray does not say.
    """

    node_id: str
    name: str
    ip: str
    is_head: bool
    alive: bool
    cpus: float
    gpus: float
    labels: Mapping[str, str] = field(default_factory=dict)
    state_message: str | None = None
    started: float | None = None

    @property
    def group(self) -> str | None:
        """Return the worker group; local and KubeRay nodes carry it as a label."""
        return self.labels.get("ray.io/node-group")


@dataclass(frozen=True)
class Job:
    """One submitted job. `node_id` is where its own process runs, once Ray has placed it.

    `end` is when Ray noticed that it had ended, in Unix seconds.
    """

    submission_id: str
    status: str
    message: str
    node_id: str | None
    exit_code: int | None
    metadata: Mapping[str, str]
    end: float | None = None

    @property
    def ended(self) -> bool:
        """Say whether Ray thinks that the job's own process is gone."""
        return self.status in ENDED_STATES


def node_from(row: Mapping[str, Any]) -> Node:
    """Read one row of /api/v0/nodes."""
    resources = row.get("resources_total") or {}
    return Node(
        node_id=str(row["node_id"]),
        name=str(row.get("node_name") or row.get("node_ip") or row["node_id"]),
        ip=str(row.get("node_ip", "")),
        is_head=bool(row.get("is_head_node")),
        alive=row.get("state") == "ALIVE",
        cpus=float(resources.get("CPU", 0)),
        gpus=float(resources.get("GPU", 0)),
        labels={str(key): str(value) for key, value in (row.get("labels") or {}).items()},
        state_message=row.get("state_message"),
        started=row["start_time_ms"] / 1000 if row.get("start_time_ms") else None,
    )


def job_from(row: Mapping[str, Any]) -> Job:
    """Read one job of /api/jobs/."""
    return Job(
        submission_id=str(row.get("submission_id") or ""),
        status=str(row["status"]),
        message=str(row.get("message") or ""),
        node_id=row.get("driver_node_id"),
        exit_code=row.get("driver_exit_code"),
        metadata=row.get("metadata") or {},
        # Ray counts in milliseconds (JobDetails.end_time).
        end=row["end_time"] / 1000 if row.get("end_time") else None,
    )
