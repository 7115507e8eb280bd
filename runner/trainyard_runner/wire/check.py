"""A check of the smoke test; its fields are those of the event `check`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """The result of one rung (kind of check) on one node, or on the cluster as a whole (node None).

    `ok` is also true for a check that was skipped.
    """

    name: str
    node: str | None
    ok: bool
    detail: str
    seconds: float = 0.0
    skipped: bool = False
    hint: str | None = None

    def event(self) -> dict[str, Any]:
        return asdict(self)
