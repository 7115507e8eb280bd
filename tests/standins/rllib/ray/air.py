"""Stand-in for ray.air."""

from typing import Any


class CheckpointConfig:
    """The settings of checkpoints."""

    def __init__(self, **how: Any) -> None:
        self.how = how
