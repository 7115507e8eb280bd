"""The outcomes of tasks and attempts, as events name them."""

from __future__ import annotations

from typing import Literal

State = Literal["succeeded", "failed", "stopped"]
# Seconds. Quicker attempts share one Ray task. Their metrics and requests to stop are not polled.
QUICK = 0.05
# The outcomes that have other words in sentences than in events.
_WORDS = {"lost": "was lost", "timeout": "ran out of time", "stopped": "was stopped"}


def in_words(outcome: str) -> str:
    """Return an outcome as a verb, as in "attempt 1 ran out of time"."""
    return _WORDS.get(outcome, outcome)
