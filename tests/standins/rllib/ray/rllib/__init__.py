"""Stand-in for RLlib."""
