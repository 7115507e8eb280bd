"""Run ado with all its actors on this node: python ado_here.py create space -f space.yaml

The actors share ado's SQLite file, which is only on this node. They start the experiments as tasks,
which run on any node. With a metastore that every node reaches (MySQL), plain `ado` is enough.
"""

from __future__ import annotations

import os
from typing import Any

import ray
from ray.actor import ActorClass
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

# Set before ado is imported, which reads the variable.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")

_start = ActorClass._remote


def _start_here(self: ActorClass[Any], *words: Any, **options: Any) -> Any:
    """Start an actor as Ray does, but by default on this node and with 0 CPUs.

    By Ray's own default, an actor needs a free CPU at the moment of its start.
    """
    if options.get("num_cpus") is None:
        options["num_cpus"] = 0
    if options.get("scheduling_strategy") is None:
        here = ray.get_runtime_context().get_node_id()
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(here, soft=False)
    return _start(self, *words, **options)


def main() -> None:
    ActorClass._remote = _start_here
    from ado.cli.core.cli import app

    app(prog_name="ado")


if __name__ == "__main__":
    main()
