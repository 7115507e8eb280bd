"""What a run came to: an error with the exit code that it deserves, or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainyard.errors import InterruptedRunError, JobFailedError, OutsideError, SmokeError, TrainyardError
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory


@dataclass(frozen=True)
class Outcome:
    """How a run stands at the end of a command. `error` is None if it succeeded, or if it simply goes on."""

    run: RunDirectory
    state: RunState
    document: Mapping[str, Any]
    error: TrainyardError | None = None

    def check(self) -> None:
        """Raise the error, if there is one."""
        if self.error:
            raise self.error


def outcome_of(
    run: RunDirectory,
    state: RunState,
    *,
    now: float,
    unfetched: Sequence[OutsideError] = (),
    unsure: str | None = None,
) -> Outcome:
    """Return the outcome of a run that was followed, or left; `unsure` if its cluster did not answer."""
    error = _error(run, state) if state.ended else None
    if error is None and unfetched:
        error = OutsideError(
            f"outputs of {len(unfetched)} tasks are still on the cluster: {unfetched[0].what}",
            where=unfetched[0].where,
            hint=f"Try again: invoke train.fetch {run.name}",
        )
    return Outcome(run, state, state.document(now=now, unsure=unsure), error)


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


def interrupted(outcome: Outcome) -> Outcome:
    """Return the outcome of a run that the user stopped by Ctrl-C or SIGTERM."""
    run = outcome.run
    if outcome.state.ended:
        return replace(outcome, error=InterruptedRunError(f"interrupted; run {run.name} was stopped"))
    error = InterruptedRunError(
        "interrupted; the run was told to stop and has not said that it ended",
        hint=f"See: invoke train.status {run.name}",
    )
    return replace(outcome, error=error)
