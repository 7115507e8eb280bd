"""Where a task's learner runs, and where it writes.

It runs on the task's own node, because nodes need not share a disk.
"""

from __future__ import annotations

import os

import ray


def checkpoints() -> str:
    """Return the directory for checkpoints that come home; "" outside of a task.

    The launchers' default directory is lost with the task.
    """
    output = os.environ.get("TRAINYARD_OUTPUT", "")
    return os.path.join(output, "ckpt") if output else ""  # noqa: PTH118 (a flag's value)


def this_node() -> dict[str, float]:
    """Return the resource that only this node has, in an amount that lets many tasks fit."""
    mine = ray.get_runtime_context().get_node_id()
    names = next(node["Resources"] for node in ray.nodes() if node["NodeID"] == mine)
    address = next(name for name in names if name.startswith("node:") and "internal" not in name)
    return {address: 0.001}
