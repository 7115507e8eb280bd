"""Schola's commands for Ray."""
