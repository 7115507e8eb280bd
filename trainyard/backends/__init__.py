"""The backends: every way to have a cluster, each a module of this package that has the name of its backend."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from trainyard.backends.contract import Backend


def named(backend: str) -> Backend:
    """Return a backend, imported when it is asked for: who uses one does not pay for Docker's client."""
    return cast(Backend, import_module(f"{__name__}.{backend}"))
