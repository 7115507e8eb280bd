"""Stands where Schola is."""
