"""Its commands for Ray."""
