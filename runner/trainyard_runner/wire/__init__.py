"""Formats and rules that the operator's machine, the head and nodes share; standard library only."""
