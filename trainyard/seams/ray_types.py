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


def version_from(found: Any) -> Version:
    """Read /api/version. Raises TypeError, LookupError, AttributeError where it is another answer, as all below."""
    return Version(ray=_text(found["ray_version"]), session=_text(found.get("session_name") or ""))


def nodes_from(found: Any) -> tuple[Node, ...]:
    """Read /api/v0/nodes."""
    return tuple(node_from(row) for row in found["data"]["result"]["result"])


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
        state_message=_text(row.get("state_message") or "") or None,
        # Ray counts in milliseconds.
        started=_number(row.get("start_time_ms") or 0) / 1000 or None,
    )


def job_from(row: Mapping[str, Any]) -> Job:
    """Read one job of /api/jobs/."""
    return Job(
        submission_id=_text(row.get("submission_id") or ""),
        status=_text(row["status"]),
        message=_text(row.get("message") or ""),
        node_id=_text(row.get("driver_node_id") or "") or None,
        exit_code=None if row.get("driver_exit_code") is None else int(_number(row["driver_exit_code"])),
        metadata={_text(key): _text(value) for key, value in (row.get("metadata") or {}).items()},
        # Ray counts in milliseconds (JobDetails.end_time).
        end=_number(row.get("end_time") or 0) / 1000 or None,
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _number(value: object) -> float:
    # NaN and what no machine has
    if not isinstance(value, (int, float)) or not -1e15 < value < 1e15:
        raise TypeError(f"{value!r} is no number")
    return value
