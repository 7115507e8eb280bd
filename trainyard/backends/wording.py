"""Nodes and numbers as people say them."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def all_answer(nodes: int) -> str:
    return f"All {nodes} nodes answer" if nodes > 1 else "The head answers"


def named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
