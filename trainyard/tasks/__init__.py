"""The commands: Invoke tasks that call an operation and return a Report."""

from __future__ import annotations

import sys

from invoke.collection import Collection

from trainyard.console import command_hints
from trainyard.tasks import cluster, image, init, registry, smoke, train, tune
from trainyard.tasks.grammar import extend_invoke

# Keeps httpx from loading its own command line, whose click, rich and pygments take longer to load
# than the rest of httpx.
sys.modules["httpx._main"] = None  # type: ignore[assignment]

extend_invoke()
namespace = Collection(init.init, cluster, image, registry, smoke, train, tune)
namespace.collections["cluster"].add_task(init.new)
namespace.collections["cluster"].add_task(init.import_)


def _arguments(task: str) -> set[str] | None:
    if task not in namespace.task_names:
        return None
    return {argument.name for argument in namespace[task].get_arguments()}


command_hints.install(_arguments)
