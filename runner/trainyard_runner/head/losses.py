"""Translates the errors that Ray raises into how an attempt ended."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from ray import exceptions

from trainyard_runner.wire.text import last_line

_UNSCHEDULABLE = (exceptions.TaskUnschedulableError, exceptions.TaskPlacementGroupRemoved)
_INSTALLER_LINES = 20
# The last line of a traceback.
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)\b")
_WORKER_LINES = 5
_MOST_WORKERS = 1000
_STATE_SECONDS = 5
_JUST_NOW = 60


@dataclass(frozen=True)
class Ending:
    """How an attempt ended, as its worker reported or as the head concluded.

    `is_final`: a retry cannot help. `tail`: last lines to show, if the worker
    sent none.
    """

    outcome: str
    reason: str | None
    is_final: bool = False
    tail: tuple[str, ...] = ()


def explain(
    error: BaseException, *, node: str | None, node_is_alive: bool, is_alone: bool = True
) -> Ending:
    """Return the ending of an attempt for which Ray raised `error`.

    `is_alone`: its Ray task had no other open attempt. Otherwise, an attempt
    that ran out of memory counts as lost: another attempt may have used the
    memory.
    """
    where = node or "its node"
    if isinstance(error, exceptions.TaskCancelledError):
        return Ending("stopped", "it had not started yet")
    if isinstance(error, exceptions.OutOfMemoryError):
        reason = f"{where} ran out of memory, and Ray ended the task"
        return Ending("failed" if is_alone else "lost", reason)
    if isinstance(error, exceptions.RuntimeEnvSetupError):
        said = _installer(str(error))
        reason = f"its runtime_env could not be set up: {said[-1]}"
        return Ending("failed", reason, is_final=True, tail=said)
    if isinstance(error, _UNSCHEDULABLE):
        return Ending("lost", "its node or placement group is gone")
    if isinstance(error, exceptions.RayTaskError):
        return Ending("failed", f"the runner failed on {where}: {last_line(str(error))}")
    if not node_is_alive or isinstance(error, exceptions.NodeDiedError):
        return Ending("lost", f"node {node} died" if node else "its node died")

    return Ending("lost", f"Ray's worker process on {where} ended ({type(error).__name__})")


def of_worker() -> tuple[str, ...]:
    """Ask Ray for the newest crashed worker's last lines; () if none.

    Ray does not say which attempt the worker ran. A crash more than a minute
    old is ignored: it belongs to another attempt.
    """
    # Imported here: this needs packages of ray[default], and the rest of the runner does not.
    from ray.util import state

    crashed = [("exit_type", "=", "SYSTEM_ERROR")]
    try:
        workers = state.list_workers(
            filters=crashed, detail=True, limit=_MOST_WORKERS, timeout=_STATE_SECONDS
        )
    except Exception:  # no dashboard, no answer in time, or too many workers for one answer
        return ()

    since = (time.time() - _JUST_NOW) * 1000
    recent = [worker for worker in workers if (worker.end_time_ms or 0) >= since]
    newest = max(recent, key=lambda worker: worker.end_time_ms or 0, default=None)
    if newest is None:
        return ()

    lines = [line.rstrip() for line in (newest.exit_detail or "").splitlines()]
    while lines and not _EXCEPTION.match(lines[-1]):
        lines.pop()
    return tuple(lines[-_WORKER_LINES:])


def unsaid(*, node: str | None, is_stopping: bool, culprit: str | None) -> Ending:
    """Return the ending of an attempt whose worker reported no end.

    This happens after `ray.cancel`, for instance. `culprit`: the first task
    that failed or was lost in the attempt's gang.
    """
    if is_stopping:
        return Ending("stopped", "the run was stopped")
    if culprit is not None:
        return Ending("stopped", f"stopped together with {culprit!r}")
    where = f" on {node}" if node else ""
    return Ending("lost", f"its worker{where} ended without a report")


def _installer(text: str) -> tuple[str, ...]:
    """Return an installer's last printed lines, without Ray's traceback."""
    said = text.rpartition("lines of stdout:")[2] or text
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return tuple(lines[-_INSTALLER_LINES:]) or ("no reason given",)
