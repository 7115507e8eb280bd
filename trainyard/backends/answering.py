"""What Ray itself says about the nodes that we made, and what that makes of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trainyard.backends.contract import ClusterState, NodeState
from trainyard.seams.ray_api import RayApi
from trainyard.seams.ray_types import Node

# The dashboard of a loaded machine may be slow, but a question must not hold up the loop.
ANSWER_SECONDS = 10.0
# The system counts when a process started from a boot time in whole seconds; a new node joins seconds after its start.
CLOCK_SECONDS = 1.0


def alive(address: str, token: str | None, *, started: Mapping[str, float]) -> frozenset[str]:
    """Return the names of the nodes that Ray calls alive. Raises OutsideError when it does not answer.

    `started` is when what runs now under each name was started, in Unix seconds of the cluster's machine: Ray takes 5
    to 20 s to notice that a node is dead, and until then its successor of the same name is not there.
    """
    with RayApi(address, token, answer_seconds=ANSWER_SECONDS) as ray:
        return frozenset(node.name for node in ray.nodes() if node.alive and not is_predecessor(node, started))


def is_predecessor(node: Node, started: Mapping[str, float]) -> bool:
    """Say whether a node joined before what runs now under its name was started."""
    return node.started is not None and node.started + CLOCK_SECONDS < started.get(node.name, 0.0)


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
