"""How tasks and their attempts end, in the short words of events."""

from __future__ import annotations

from typing import Literal

State = Literal["succeeded", "failed", "stopped"]
# Seconds: an attempt that takes longer is watched, and has its Ray task for itself.
QUICK = 0.05
# The events carry the short words.
_WORDS = {"lost": "was lost", "timeout": "ran out of time", "stopped": "was stopped"}


def in_words(outcome: str) -> str:
    """Return an outcome as the verb of a sentence: "attempt 1 ran out of time"."""
    return _WORDS.get(outcome, outcome)
