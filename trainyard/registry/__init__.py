"""A registry of one's own: run it, look into it, make Docker trust it, remove it."""
