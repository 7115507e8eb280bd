"""Where a task's learner runs, on the task's own node since nodes need not share a disk, and where
it writes.
"""

from __future__ import annotations

import os

import ray


def checkpoints() -> str:
    """Return where checkpoints come home from, "" outside of a task; the launchers' own default
    ends with the task.
    """
    output = os.environ.get("TRAINYARD_OUTPUT", "")
    return os.path.join(output, "ckpt") if output else ""  # noqa: PTH118 (a flag's value)


def this_node() -> dict[str, float]:
    """Return the resource that only this node of the cluster has, and so little of it that many
    tasks fit.
    """
    mine = ray.get_runtime_context().get_node_id()
    names = next(node["Resources"] for node in ray.nodes() if node["NodeID"] == mine)
    address = next(name for name in names if name.startswith("node:") and "internal" not in name)
    return {address: 0.001}
