"""Run ado with its own actors on this node: python ado_here.py create space -f space.yaml

They share its SQLite file, which no other node has. Its experiments are tasks that they start, and
run on any node. With a metastore that every node reaches (MySQL), the plain `ado` does as well.
"""

from __future__ import annotations

import os
from typing import Any

import ray
from ray.actor import ActorClass
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

# Before ado is imported, which reads it.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")

_start = ActorClass._remote


def _start_here(self: ActorClass[Any], *words: Any, **options: Any) -> Any:
    """Start an actor as Ray does; one that does not say where, here.

    Ray would want a free CPU for one that does not say how many, for the moment of its start.
    """
    if options.get("num_cpus") is None:
        options["num_cpus"] = 0
    if options.get("scheduling_strategy") is None:
        here = ray.get_runtime_context().get_node_id()
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(here, soft=False)
    return _start(self, *words, **options)


def main() -> None:
    """Be the command `ado`."""
    ActorClass._remote = _start_here
    from ado.cli.core.cli import app

    app(prog_name="ado")


if __name__ == "__main__":
    main()
