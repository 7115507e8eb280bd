"""What tasks call, imported when a task first needs it.

`trainyard --list` must stay quick, and `import pydantic` alone would take a third of its time.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainyard import ending as ending
    from trainyard import importing as importing
    from trainyard import leftovers as leftovers
    from trainyard import lifecycle as lifecycle
    from trainyard import listing as listing
    from trainyard import project as project
    from trainyard import resuming as resuming
    from trainyard import training as training
    from trainyard import tuning as tuning
    from trainyard import usage as usage
    from trainyard.console import progress as progress
    from trainyard.console import run_screen as run_screen
    from trainyard.images import pipeline as pipeline
    from trainyard.results import account as account


def __getattr__(name: str) -> Any:
    for package in ("trainyard", "trainyard.console", "trainyard.images", "trainyard.results"):
        if find_spec(f"{package}.{name}"):
            return import_module(f"{package}.{name}")
    raise AttributeError(name)
