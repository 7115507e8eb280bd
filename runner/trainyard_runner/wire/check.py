"""A check of the smoke test, as the event of the same name has it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """One rung on one node, or on the cluster as a whole (node None)."""

    name: str
    node: str | None
    ok: bool
    detail: str
    seconds: float = 0.0
    skipped: bool = False
    hint: str | None = None

    def event(self) -> dict[str, Any]:
        return asdict(self)
