"""Formats and rules that the operator's machine, the head and nodes share.

Uses only the standard library.
"""
