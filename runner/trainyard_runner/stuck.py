"""How long a task is waited for that fits no living node, and what is said meanwhile. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trainyard_runner import members, nodes
from trainyard_runner.nodes import Node
from trainyard_runner.plan import Gate, Task
from trainyard_runner.room import largest

LEAST = 60.0
# It may be made anew on a host that has to pull the image first: 20 GB at 50 Mbit/s.
MADE_ANEW = 3600.0


def patience(task: Task, gate: Gate, alive: Sequence[Node]) -> float:
    """Return for how many seconds without any progress a node that has what a task asks for is waited for."""
    return math.inf if nodes.slots(task, members.later(gate, alive)) else without_growth(task, gate, alive)


def without_growth(task: Task, gate: Gate, alive: Sequence[Node]) -> float:
    """Return the same where Ray does not know what the task waits for: no autoscaler adds a node for it."""
    return MADE_ANEW if nodes.slots(task, members.made_anew(gate, alive)) else LEAST


def missing(task: Task, gate: Gate, alive: Sequence[Node]) -> str:
    """Say why there is no node for a task: whoever adds it may not be able to."""
    if nodes.slots(task, members.later(gate, alive)):
        return "Ray's autoscaler has not added a node with that yet"
    if nodes.slots(task, members.made_anew(gate, alive)):
        return "the node that was lost has not been made anew yet"
    return f"no node has that; {largest(task, alive)}"
