"""What tasks call, imported when a task first needs it.

`invoke --list` must stay quick, and `import pydantic` alone would take a third of its time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainyard import lifecycle, listing, progress, scaling, training, usage
    from trainyard.images import image_command, pipeline
    from trainyard.tasks import cluster_report, image_report, registry_report, smoke_report, train_report

_PACKAGES = {"image_command": "trainyard.images", "pipeline": "trainyard.images"}

__all__ = [
    "cluster_report",
    "image_command",
    "image_report",
    "lifecycle",
    "listing",
    "pipeline",
    "progress",
    "registry_report",
    "scaling",
    "smoke_report",
    "train_report",
    "training",
    "usage",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(name)
    package = "trainyard.tasks" if name.endswith("_report") else _PACKAGES.get(name, "trainyard")
    return import_module(f"{package}.{name}")
