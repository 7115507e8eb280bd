"""Stand-in for the Torch that Isaac Sim bundles."""

__version__ = "2.7.0+cu128"
