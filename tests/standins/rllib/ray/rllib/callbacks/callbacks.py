"""Stands where RLlib's callbacks are."""


class RLlibCallback:
    """Callbacks that RLlib calls, when something has happened."""
