"""Resources kept free, on any nodes, for a task's actors and Ray tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Room:
    """Amounts of Ray's resources, summed over all nodes; memory in bytes."""

    cpus: float = 0.0
    gpus: float = 0.0
    memory: int = 0

    def __bool__(self) -> bool:
        return bool(self.cpus or self.gpus or self.memory)

    @classmethod
    def of(cls, document: Mapping[str, Any] | None) -> Room:
        amounts = document or {}
        return cls(
            cpus=amounts.get("cpus") or 0,
            gpus=amounts.get("gpus") or 0,
            memory=amounts.get("memory") or 0,
        )


NO_ROOM = Room()
