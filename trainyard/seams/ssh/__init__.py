"""Hosts over SSH: commands, files, forwarded ports, on many hosts at once."""
