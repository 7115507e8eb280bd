"""Stand-in for RLlib's policies."""

from typing import Any


class PolicySpec:
    """The specification of a policy."""

    def __init__(self, **how: Any) -> None:
        self.how = how
