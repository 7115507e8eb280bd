"""What became of an attempt, in words that a person would use; the events carry the short ones."""

from __future__ import annotations

_WORDS = {"lost": "was lost", "timeout": "ran out of time", "stopped": "was stopped"}


def in_words(outcome: str) -> str:
    """Return an outcome as it is said of an attempt: "attempt 1 ran out of time"."""
    return _WORDS.get(outcome, outcome)
