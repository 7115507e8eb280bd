"""Stands where RLlib's policies are."""

from typing import Any


class PolicySpec:
    """A policy to be made."""

    def __init__(self, **how: Any) -> None:
        self.how = how
