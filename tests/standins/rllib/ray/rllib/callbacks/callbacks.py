"""Stand-in for RLlib's callbacks."""


class RLlibCallback:
    """The base class of callbacks."""
