"""Trainyard's control plane, which runs on the operator's machine.

`Cluster`, `Job` and `Run` are its interface for Python.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainyard.api.cluster import Cluster as Cluster
    from trainyard.api.job import Job as Job
    from trainyard.api.run import Run as Run
else:
    # Imported at first use: every command imports this module, and few need these classes.
    def __getattr__(name: str) -> type:
        if name not in ("Cluster", "Job", "Run"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"trainyard.api.{name.lower()}"), name)

    def __dir__() -> list[str]:
        return ["Cluster", "Job", "Run", "__version__"]


__version__ = "0.1.0"
