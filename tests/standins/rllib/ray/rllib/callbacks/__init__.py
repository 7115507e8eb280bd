"""Stand-in for RLlib's package of callbacks."""
