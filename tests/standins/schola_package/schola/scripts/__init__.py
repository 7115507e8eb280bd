"""Schola's commands."""
