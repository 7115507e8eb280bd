"""How a run stands, and at the end of a command the error that it deserves, with its exit code, or none."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainyard.errors import InterruptedRunError, JobFailedError, OutsideError, SmokeError, TrainyardError
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory


@dataclass(frozen=True)
class Standing:
    """How a run stands. `unsure` says why it may have gone on since: its cluster did not answer.

    Of a `broken` run, whose record is damaged, it says what is wrong. `error` is what a command that followed the run
    ends with; None if the run succeeded, or simply goes on.
    """

    run: RunDirectory
    state: RunState
    unsure: str | None = None
    broken: bool = False
    error: TrainyardError | None = None

    def document(self) -> dict[str, Any]:
        return self.state.document(now=time.time(), unsure=self.unsure)


def concluded(found: Standing, *, unfetched: Sequence[OutsideError] = ()) -> Standing:
    """Return a run that was followed, or left, with its error; `unfetched` is what did not come home."""
    run, state = found.run, found.state
    error = _error(run, state) if state.ended else None
    if error is None and unfetched:
        error = OutsideError(
            f"outputs of {len(unfetched)} tasks are still on the cluster: {unfetched[0].what}",
            where=unfetched[0].where,
            hint=f"Try again: invoke train.fetch {run.name}",
        )
    return replace(found, error=error)


def _error(run: RunDirectory, state: RunState) -> TrainyardError | None:
    if state.exit == 0:
        return None
    what = state.error or f"run {run.name} {state.state}"
    if state.exit == SmokeError.exit_code:
        return SmokeError(what, where=f"cluster {state.cluster}", hint=state.hint or "Nothing was dispatched.")
    if state.exit == JobFailedError.exit_code:
        return JobFailedError(_counted(state), where=str(run.path), hint=state.hint)
    return OutsideError(what, where=str(run.path), hint=state.hint)


def _counted(state: RunState) -> str:
    counts = [f"{state.counts[name]} {name}" for name in ("failed", "stopped") if state.counts[name]]
    if state.error == f"{state.counts['failed']} of {len(state.tasks)} tasks failed":
        # The runner has counted the failed ones already.
        return ", ".join([state.error, *counts[1:]])
    tasks = f"{' and '.join(counts)} of {len(state.tasks)} tasks" if counts else ""
    bare = "the run was stopped" if state.state == "stopped" else "the run failed"
    what = bare if state.error in (None, "stopped") else state.error
    return f"{what} ({tasks})" if tasks else str(what)


def interrupted(found: Standing) -> Standing:
    """Return a run that the user stopped by Ctrl-C or SIGTERM."""
    run = found.run
    if found.state.ended:
        return replace(found, error=InterruptedRunError(f"interrupted; run {run.name} was stopped"))
    error = InterruptedRunError(
        "interrupted; the run was told to stop and has not said that it ended",
        hint=f"See: invoke train.status {run.name}",
    )
    return replace(found, error=error)
