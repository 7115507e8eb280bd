"""Where a task's learner runs: on the task's own node, since nodes need not share a disk."""

from __future__ import annotations

import ray


def this_node() -> dict[str, float]:
    """Return the resource that only this node of the cluster has, and so little of it that many tasks fit."""
    mine = ray.get_runtime_context().get_node_id()
    names = next(node["Resources"] for node in ray.nodes() if node["NodeID"] == mine)
    address = next(name for name in names if name.startswith("node:") and "internal" not in name)
    return {address: 0.001}
