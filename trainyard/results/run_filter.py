"""Which runs of this machine a list shows."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from trainyard.errors import Problem, RequestError
from trainyard.results.state import State
from trainyard.spec.units import parse_duration
from trainyard.suggest import did_you_mean


@dataclass(frozen=True)
class RunFilter:
    """What a run must be to be shown; None: anything. `since` is in Unix seconds."""

    job: str | None
    state: str | None
    since: float | None

    def takes(self, record: Mapping[str, Any]) -> bool:
        """Say whether a run may be shown by what its run.json says; its state is asked later."""
        if self.job is not None and record.get("job") != self.job:
            return False
        return self.since is None or (started(record) or 0.0) >= self.since


def run_filter(*, job: str, state: str, since: str, now: float) -> RunFilter:
    """Return the filter that flags mean, "" for one that was not given. Raises RequestError."""
    problems = []
    if state and state not in get_args(State):
        known = get_args(State)
        problems.append(Problem("--state", f"one of: {', '.join(known)}{did_you_mean(state, known)}"))
    age = 0.0
    if since:
        try:
            age = parse_duration(since)
        except ValueError as error:
            problems.append(Problem("--since", str(error)))
    if problems:
        raise RequestError("there are no such runs", problems=tuple(problems))
    # A job may be named as train.dispatch takes it: by its directory.
    return RunFilter(Path(job).name or None, state or None, now - age if since else None)


def started(record: Mapping[str, Any]) -> float | None:
    written = record.get("started")
    return datetime.datetime.fromisoformat(str(written)).timestamp() if written else None
