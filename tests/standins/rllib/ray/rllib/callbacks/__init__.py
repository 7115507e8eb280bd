"""Stands where RLlib is."""
