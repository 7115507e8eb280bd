"""How tasks and their attempts end, in the short words of events."""

from __future__ import annotations

from typing import Literal

State = Literal["succeeded", "failed", "stopped"]
# Seconds. A quicker attempt shares its Ray task with others, and its metric and requests to stop
# are not polled.
QUICK = 0.05
# The outcomes that a sentence calls by other words than events do.
_WORDS = {"lost": "was lost", "timeout": "ran out of time", "stopped": "was stopped"}


def in_words(outcome: str) -> str:
    """Return an outcome as the verb of a sentence: "attempt 1 ran out of time"."""
    return _WORDS.get(outcome, outcome)
