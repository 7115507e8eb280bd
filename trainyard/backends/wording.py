"""Nodes and numbers as people say them."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def whole(nodes: int) -> str:
    """Return what a cluster of so many nodes consists of."""
    return f"the head and {counted(nodes - 1, 'worker')}" if nodes > 1 else "the head"


def all_answer(nodes: int) -> str:
    """Return the title of the step that waits for every node."""
    return f"All {nodes} nodes answer" if nodes > 1 else "The head answers"


def named(names: Sequence[str]) -> str:
    """Return the first three names, and how many more there are."""
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
