"""Lists of steps, held against what `Step` says of its ids."""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.steps import Stage, Step


def refuse_lost_ids(steps: Sequence[Step | Stage]) -> None:
    """Fail where two steps have one id, or one comes after a step that is not before it."""
    known: set[str] = set()
    for step in steps:
        assert step.id not in known, f"two steps are called {step.id}"
        assert step.after is None or step.after in known, (
            f"{step.id} comes after {step.after}, which is not there"
        )
        known.add(step.id)
