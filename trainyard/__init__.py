"""Trainyard: the control plane, everything that runs on the operator's machine."""

__version__ = "0.1.0"
