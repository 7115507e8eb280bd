"""Stand-in for RLlib's package of policies."""
