"""Decides when a unit may start, and on which nodes."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ray._private import state as ray_state

from trainyard_runner.head.holdings import Holding, Holdings, by_node, in_numbers, kept_free
from trainyard_runner.head.in_flight import InFlight
from trainyard_runner.head.placing import LivingNodes, NodeMissingError
from trainyard_runner.head.submitting import Live, Place
from trainyard_runner.head.suspects import Suspects
from trainyard_runner.head.units import Unit
from trainyard_runner.wire import fit, members, nodes, shares
from trainyard_runner.wire.plan import Plan, Task
from trainyard_runner.wire.shares import Alike

_LEAST_WINDOW = 16


class Capacity:
    """Decides which units of a run may start now, and on which nodes."""

    def __init__(
        self, plan: Plan, *, nodes: LivingNodes, in_flight: InFlight, holdings: Holdings
    ) -> None:
        self._plan = plan
        self._nodes = nodes
        self._in_flight = in_flight
        self._holdings = holdings
        self._suspects = Suspects()
        self._has_actors = False
        self._missing_since: dict[str, float] = {}

    def place(self, unit: Unit) -> Place | None:
        """Return where a unit may start now; None if the unit must wait.

        A unit waits here only for its share of a node, or because actors need
        the free resources; any other unit waits in Ray. Raises NodeMissingError
        if a gang that asks for shares does not fit at once.
        """
        if not self._leaves_room(unit):
            return None
        if len(unit.tasks) > 1:
            return Place(self._together(unit.tasks))

        task = unit.tasks[0]
        avoided = self.avoided(task)
        among = self._share_of(task, avoided)
        if among is None and task.share is not None:
            return None
        return Place([among], avoided)

    def window(self, task: Task) -> int:
        """Return how many Ray tasks of a shape may be in flight.

        More than fit: Ray starts the next task as soon as one ends, and an
        autoscaler sees the demand.
        """
        return max(_LEAST_WINDOW, 2 * nodes.slots(task, self._nodes.known))

    def avoided(self, task: Task) -> frozenset[str]:
        return self._suspects.avoided(task, self._nodes.known)

    def blame(self, live: Live) -> list[str]:
        """Record that the watchdog ended an attempt on its node.

        If the node is avoided from now on, returns all tasks that the watchdog
        ended there; else []. A cluster's only node is never avoided. A gang's
        attempt is not recorded.
        """
        node_id = live.record.node_id
        if node_id is None or len(live.unit.tasks) > 1:
            return []
        tasks = self._suspects.blame(live.task.name, node_id)
        if len(self._nodes.known) > 1:
            return tasks
        return []

    def is_missing_for_long(self, task: Task, problem: str) -> bool:
        """Note that no node can run a task; return whether to fail the task.

        The wait counts from the first call with the same `problem`.
        """
        since = self._missing_since.setdefault(problem, time.monotonic())
        self._nodes.look_soon()
        patience = fit.without_growth(task, self._plan.gate, self._nodes.known)
        return time.monotonic() - since >= patience

    def why_never(self, task: Task, *, idle: float) -> str | None:
        """Return why a task must fail; None if it need not fail yet.

        A task must fail if it fits no node, and the run was idle for
        `fit.patience`.
        """
        alive = self._nodes.known
        if fit.has_all(task, alive) or idle < fit.patience(task, self._plan.gate, alive):
            return None
        return fit.never(task, alive)

    def _leaves_room(self, unit: Unit) -> bool:
        """Return whether a unit leaves enough free for all runs' actors.

        This run's actors count, too. Returns True if no task has actors.
        """
        others = self._holdings.others()
        self._has_actors = self._has_actors or any(task.actors for task in unit.tasks)
        if not self._has_actors and not any(holding.actors for holding in others):
            return True
        places = self._places()
        submitted = [(live.record.node, live.taken) for live in self._in_flight.open()]
        this_run = Holding(self._plan.run, by_node(submitted), self._in_flight.kept_free())
        tasks = [in_numbers(task, places) for task in unit.tasks]
        return not kept_free(tasks, places, [this_run, *others])

    def _share_of(self, task: Task, avoided: frozenset[str]) -> Alike | None:
        """Return nodes of one size, any of which may give a task its share.

        Returns None if the task asks for no share, or must wait.
        """
        if task.share is None:
            return None

        asked: dict[shares.Size, shares.Asked] = {}
        for ray_task in self._in_flight.ray_tasks():
            if ray_task.shape == task.shape and ray_task.among is not None:
                of_size = asked.setdefault(ray_task.among.size, shares.Asked())
                of_size.all += 1
                of_size.unplaced += not ray_task.is_placed

        places = [node for node in self._places() if node.node_id not in avoided]
        return shares.chosen(task, places, asked, ray_state.available_resources_per_node)

    def _together(self, tasks: Sequence[Task]) -> Sequence[Alike | None]:
        if all(task.share is None for task in tasks):
            return [None] * len(tasks)
        found = shares.together(tasks, self._places(), ray_state.available_resources_per_node)
        if found is None:
            raise NodeMissingError(f"{len(tasks)} tasks that run together do not fit at once")
        return found

    def _places(self) -> list[nodes.Node]:
        alive = self._nodes.known
        return shares.places(alive, members.later(self._plan.gate, alive))
