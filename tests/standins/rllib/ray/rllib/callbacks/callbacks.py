"""Stands where RLlib's callbacks are."""


class RLlibCallback:
    """What RLlib calls, when something has happened."""
