"""Stands where ray.air is."""

from typing import Any


class CheckpointConfig:
    """When checkpoints are written."""

    def __init__(self, **how: Any) -> None:
        self.how = how
