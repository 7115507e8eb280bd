"""Reads texts that other programs printed."""

from __future__ import annotations


def last_line(text: str) -> str:
    """Return the last line that is not blank, stripped; "" if there is none."""
    stripped = text.strip()
    if not stripped:
        return ""
    return stripped.splitlines()[-1].strip()
