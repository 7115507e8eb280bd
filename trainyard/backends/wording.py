"""Nodes and numbers as people say them."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def whole(nodes: int) -> str:
    return f"the head and {counted(nodes - 1, 'worker')}" if nodes > 1 else "the head"


def all_answer(nodes: int) -> str:
    """Return the title of the step that waits for every node."""
    return f"All {nodes} nodes answer" if nodes > 1 else "The head answers"


def named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def start_of(missing: Sequence[str], nodes: int) -> str:
    """Return the title of the step that starts nodes: the whole cluster where that is all of it, or nothing is."""
    return f"Start {named(missing) if 0 < len(missing) < nodes else whole(nodes)}"
