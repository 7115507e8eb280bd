"""Nodes on which tasks were ended because their metric did not move: kept from tasks that others
can run.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainyard_runner.wire import nodes
from trainyard_runner.wire.plan import Task

_TASKS = 2


class Suspects:
    """What was ended where."""

    def __init__(self) -> None:
        self._ended: dict[str, set[str]] = {}

    def blame(self, task: str, node_id: str) -> list[str]:
        """Note that a task was ended on a node; return all such tasks at the moment when the node
        gets no more.
        """
        ended = self._ended.setdefault(node_id, set())
        is_new = task not in ended
        ended.add(task)
        if is_new and len(ended) == _TASKS:
            return sorted(ended)
        return []

    def avoided(self, task: Task, alive: Iterable[nodes.Node]) -> frozenset[str]:
        """Return the nodes that a task is kept from: excluded ones and where it was ended, as far
        as others fit it.
        """
        if not self._ended:
            return frozenset()
        excluded = {node for node, ended in self._ended.items() if len(ended) >= _TASKS}
        own = {node for node, ended in self._ended.items() if task.name in ended}
        fitting = {node.node_id for node in alive if nodes.slots(task, [node])}
        for kept in (excluded | own, excluded):
            if fitting - kept:
                return frozenset(fitting & kept)
        return frozenset()
