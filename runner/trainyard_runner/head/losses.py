"""What Ray's errors mean for an attempt."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from ray import exceptions

_UNSCHEDULABLE = tuple(
    getattr(exceptions, name)
    for name in ("TaskUnschedulableError", "TaskPlacementGroupRemoved")
    if hasattr(exceptions, name)
)
_INSTALLER_LINES = 20
# The last line of a traceback.
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)\b")
_WORKER_LINES = 5
_MOST_WORKERS = 1000
_STATE_SECONDS = 5
_JUST_NOW = 60


@dataclass(frozen=True)
class Ending:
    """How an attempt ended whose worker could not say it."""

    outcome: str
    reason: str | None
    is_final: bool = False
    tail: tuple[str, ...] = ()


def explain(
    error: BaseException, *, node: str | None, node_is_alive: bool, is_alone: bool = True
) -> Ending:
    """Say what became of an attempt when Ray raised `error` for it; others may have shared its
    worker.
    """
    where = node or "its node"
    if isinstance(error, exceptions.TaskCancelledError):
        return Ending("stopped", "it had not started yet")
    if isinstance(error, exceptions.OutOfMemoryError):
        reason = f"{where} ran out of memory, and Ray ended the task"
        return Ending("failed" if is_alone else "lost", reason)
    if isinstance(error, exceptions.RuntimeEnvSetupError):
        said = _installer(str(error))
        return Ending(
            "failed", f"its runtime_env could not be set up: {said[-1]}", is_final=True, tail=said
        )
    if isinstance(error, _UNSCHEDULABLE):
        return Ending("lost", "the node it should run on is gone")
    if isinstance(error, exceptions.RayTaskError):
        return Ending("failed", f"the runner failed on {where}: {_last_line(str(error))}")
    if not node_is_alive or isinstance(error, exceptions.NodeDiedError):
        return Ending("lost", f"node {node} died" if node else "its node died")

    return Ending("lost", f"Ray's worker process on {where} ended ({type(error).__name__})")


def of_worker() -> tuple[str, ...]:
    """Return what Ray knows of the worker that crashed last, line by line; () if nothing, or if it
    cannot be asked.

    Ray does not say whose worker it was: one that crashed a minute ago is another attempt's.
    """
    # Ray's state API needs what only ray[default] has, and no run needs it otherwise.
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
    if newest:
        lines = [line.rstrip() for line in (newest.exit_detail or "").splitlines()]
    else:
        lines = []

    named = [number for number, line in enumerate(lines) if _EXCEPTION.match(line)]
    if named:
        return tuple(lines[: named[-1] + 1][-_WORKER_LINES:])

    return ()


def unsaid(*, node: str | None, is_stopping: bool, culprit: str | None) -> Ending:
    """Say what became of an attempt whose worker ended without a word; Ray does so when the attempt
    was cancelled.
    """
    if is_stopping:
        return Ending("stopped", "the run was stopped")
    if culprit is not None:
        return Ending("stopped", f"stopped together with {culprit!r}")
    where = f" on {node}" if node else ""
    return Ending("lost", f"its worker{where} ended without a word")


def _installer(text: str) -> tuple[str, ...]:
    """Return the last lines of what an installer said, without Ray's own traceback before them."""
    said = text.rpartition("lines of stdout:")[2] or text
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return tuple(lines[-_INSTALLER_LINES:]) or ("no reason given",)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else text
