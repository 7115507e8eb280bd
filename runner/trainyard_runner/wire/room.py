"""Room that a task wants free for what it starts through Ray: its actors and Ray tasks, on any
nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Room:
    """Amounts of what Ray hands out, in all; memory in bytes."""

    cpus: float = 0.0
    gpus: float = 0.0
    memory: int = 0

    def __bool__(self) -> bool:
        return bool(self.cpus or self.gpus or self.memory)

    @classmethod
    def of(cls, document: Mapping[str, Any] | None) -> Room:
        found = document or {}
        return cls(*(found.get(name) or 0 for name in ("cpus", "gpus", "memory")))


NO_ROOM = Room()
