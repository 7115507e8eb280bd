"""The modules for `api.cluster` and tasks, each imported at its first use.

`from trainyard import Cluster` and `trainyard --list` must be quick: `import
pydantic` alone would take a third of the time of `--list`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainyard import importing as importing
    from trainyard.api import connection as connection
    from trainyard.api import run as run
    from trainyard.console import progress as progress
    from trainyard.console import run_screen as run_screen
    from trainyard.dispatch import follow as follow
    from trainyard.dispatch import launch as launch
    from trainyard.dispatch import smoke as smoke
    from trainyard.images import pipeline as pipeline
    from trainyard.operations import cluster_list as cluster_list
    from trainyard.operations import clusters as clusters
    from trainyard.operations import leftovers as leftovers
    from trainyard.operations import new_project as new_project
    from trainyard.operations import new_run as new_run
    from trainyard.operations import nodes as nodes
    from trainyard.operations import resume as resume
    from trainyard.operations import run_guard as run_guard
    from trainyard.operations import runs as runs
    from trainyard.operations import scale as scale
    from trainyard.operations import sweeps as sweeps
    from trainyard.operations import usage as usage
    from trainyard.results import account as account

# Searched in this order: `resume` and `runs` come from operations, not from dispatch.
_PACKAGES = (
    "trainyard.api",
    "trainyard.operations",
    "trainyard.console",
    "trainyard.dispatch",
    "trainyard.images",
    "trainyard.results",
    "trainyard",
)


def __getattr__(name: str) -> Any:
    for package in _PACKAGES:
        if find_spec(f"{package}.{name}"):
            return import_module(f"{package}.{name}")
    raise AttributeError(name)
