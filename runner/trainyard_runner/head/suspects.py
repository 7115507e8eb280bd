"""Nodes that are avoided because the watchdog ended tasks there."""

from __future__ import annotations

from collections.abc import Iterable

from trainyard_runner.wire import nodes
from trainyard_runner.wire.plan import Task

_TASKS = 2


class Suspects:
    """Remembers which tasks the watchdog ended on which nodes.

    A node is excluded for all tasks once the watchdog has ended _TASKS
    different tasks there.
    """

    def __init__(self) -> None:
        self._ended: dict[str, set[str]] = {}

    def blame(self, task: str, node_id: str) -> list[str]:
        """Record that the watchdog ended a task on a node.

        If this excludes the node, returns all tasks that the watchdog ended
        there; else [].
        """
        ended = self._ended.setdefault(node_id, set())
        is_new = task not in ended
        ended.add(task)
        if is_new and len(ended) == _TASKS:
            return sorted(ended)
        return []

    def avoided(self, task: Task, alive: Iterable[nodes.Node]) -> frozenset[str]:
        """Return the ids of nodes to avoid, as long as another node fits.

        A task avoids excluded nodes, and nodes where the watchdog ended the
        task. If no other node fits, the task avoids only excluded nodes. If
        only excluded nodes fit, the task avoids none.
        """
        if not self._ended:
            return frozenset()
        excluded = {node for node, ended in self._ended.items() if len(ended) >= _TASKS}
        ended_on = {node for node, ended in self._ended.items() if task.name in ended}
        fitting = {node.node_id for node in alive if nodes.slots(task, [node])}
        for kept in (excluded | ended_on, excluded):
            if fitting - kept:
                return frozenset(fitting & kept)
        return frozenset()
