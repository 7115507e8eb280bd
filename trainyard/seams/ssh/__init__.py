"""Hosts that are reached by SSH: commands, files, forwarded ports, on many hosts at once."""
