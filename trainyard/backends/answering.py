"""What Ray itself says about the nodes that we made, and what that makes of a cluster."""

from __future__ import annotations

from collections.abc import Iterable

from trainyard.backends.contract import ClusterState, NodeState
from trainyard.seams.ray_api import RayApi

# The dashboard of a loaded machine may be slow, but a question must not hold up the loop.
ANSWER_SECONDS = 10.0


def alive(address: str, token: str | None) -> frozenset[str]:
    """Return the names of the nodes that Ray calls alive. Raises OutsideError when it does not answer."""
    with RayApi(address, token, answer_seconds=ANSWER_SECONDS) as ray:
        return frozenset(node.name for node in ray.nodes() if node.alive)


def node_state(*, runs: bool, answers: bool, wanted: bool) -> NodeState:
    """Return the state of a node, by what its machine and what Ray says."""
    if not runs:
        return "down"
    if not wanted:
        return "surplus"
    return "up" if answers else "starting"


def cluster_state(nodes: Iterable[NodeState]) -> ClusterState:
    """Return the state of the cluster whose nodes have these states."""
    states = set(nodes)
    if states == {"up"}:
        return "up"
    return "down" if states <= {"down"} else "partial"
