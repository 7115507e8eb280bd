"""Stand-in for RLlib's algorithms."""
