"""Formats and rules shared by the operator's machine, the head and nodes; only standard library."""
