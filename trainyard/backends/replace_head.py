"""A running head that would have to go: all runs end with it, so that it must be asked for."""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.errors import RequestError
from trainyard.steps import PlannedStep, Step, no

NEEDS = "needs --recreate"


def step(error: RequestError, *, title: str) -> Step:
    """Return the step that stops there, before anything is changed; a plan shows it and all that would follow."""

    def refuse() -> None:
        raise error

    return Step(title, done=lambda: no(f"{NEEDS}, which ends everything on the cluster: {error.where}"), do=refuse)


def is_needed(plan: Sequence[PlannedStep]) -> bool:
    """Say whether a plan stops at such a step: what it plans is only done with --recreate."""
    return any(step.state == "would" and step.detail.startswith(NEEDS) for step in plan)
