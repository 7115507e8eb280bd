"""Stand-in for Schola."""
