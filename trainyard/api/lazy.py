"""The modules that `api.cluster` calls, each imported at its first use.

`from trainyard import Cluster` must be quick: most modules are needed only to dispatch a job.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainyard.api import connection as connection
    from trainyard.api import run as run
    from trainyard.console import run_screen as run_screen
    from trainyard.dispatch import follow as follow
    from trainyard.dispatch import launch as launch
    from trainyard.dispatch import smoke as smoke
    from trainyard.operations import new_run as new_run
    from trainyard.operations import resume as resume
    from trainyard.operations import runs as runs

# Searched in this order: `resume` and `runs` are those of operations, not of dispatch.
_PACKAGES = ("trainyard.api", "trainyard.operations", "trainyard.console", "trainyard.dispatch")


def __getattr__(name: str) -> Any:
    for package in _PACKAGES:
        if find_spec(f"{package}.{name}"):
            return import_module(f"{package}.{name}")
    raise AttributeError(name)
