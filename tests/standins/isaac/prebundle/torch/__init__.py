"""Stands where Isaac Sim has Torch."""

__version__ = "2.7.0+cu128"
