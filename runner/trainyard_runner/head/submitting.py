"""Hands attempts to Ray: single tasks, and all tasks of a gang at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from trainyard_runner import shipped
from trainyard_runner.head import placing
from trainyard_runner.head.records import AttemptRecord, Records
from trainyard_runner.head.units import Unit
from trainyard_runner.wire.nodes import Node
from trainyard_runner.wire.plan import Plan, Shape, Task
from trainyard_runner.wire.shares import Alike

_HELD_BACK_AFTER = 8


@dataclass
class RayTask:
    """One task of Ray's: the attempts that it runs one after the other, by number, until they have
    ended.
    """

    shape: Shape
    open: dict[int, Live]
    among: Alike | None = None  # the nodes that it has a share of one of
    node_id: str | None = None
    avoided: frozenset[str] = frozenset()  # nodes that it is kept from
    is_withdrawn: bool = False

    @property
    def is_placed(self) -> bool:
        return self.node_id is not None or any(live.record.is_ready for live in self.open.values())


@dataclass
class Live:
    """An attempt that Ray has. `taken` is its task with what it takes of its node."""

    unit: Unit
    task: Task
    taken: Task
    record: AttemptRecord
    # What the attempt before left, held until the new one has it.
    held: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Place:
    """Where a unit may run: not on `avoided` nodes, and by task the nodes that it gets a share of
    one of.
    """

    among: Sequence[Alike | None]
    avoided: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Gang:
    """The places that tasks have asked for together, and by task the nodes that it gets a share of
    one of.
    """

    group: PlacementGroup
    among: Sequence[Alike | None]


class Submitter:
    """Turns units into Ray tasks."""

    def __init__(
        self,
        plan: Plan,
        records: Records,
        *,
        runner: shipped.Package,
        job: shipped.Package | None,
        ray_environment: dict[str, Any],
        has_own_package: bool,
    ) -> None:
        """Hand out attempts that start others through Ray in `ray_environment`, with a package of
        their own or not.
        """
        self._plan = plan
        self._records = records
        self._packages = (runner, job)

        # Ray ends a worker after each task that had a GPU, unless it is told not to (1.2-1.9 s
        # each, measured).
        self._function = ray.remote(
            max_calls=0,
            max_retries=0,
            num_returns="streaming",
            _generator_backpressure_num_objects=_HELD_BACK_AFTER,
        )(shipped.attempts)

        # Only these tasks get the environment: the gate, and the runner itself, need none and start
        # at once.
        if plan.runtime_env:
            self._environment = {"runtime_env": plan.runtime_env}
        else:
            self._environment = {}

        self._ray_environment = ray_environment
        self._has_own_package = has_own_package
        self._has_selectors = _accepts(self._function, label_selector={"a": "b"})
        self._shapes: dict[tuple[Any, ...], Any] = {}
        self._known_nodes: Sequence[Node] = ()

    def submit(
        self,
        units: Sequence[Unit],
        nodes: Sequence[Node],
        avoided: frozenset[str],
        among: Alike | None,
    ) -> dict[Any, RayTask]:
        """Start the next attempts of single tasks of one shape, one after the other. Raises
        NodeMissingError.

        `among` are nodes of one size: tasks that want a share get one of these.
        """
        function = self._shaped(units[0].tasks[0], nodes, units[0].attempt, avoided, among)
        attempts = [(unit, unit.tasks[0]) for unit in units]
        started = self._start(attempts, function, master=None, among=among)
        return {
            generator: replace(ray_task, avoided=avoided) for generator, ray_task in started.items()
        }

    def reserve(self, unit: Unit, nodes: Sequence[Node], among: Sequence[Alike | None]) -> Gang:
        """Ask Ray for the places of a gang. Raises NodeMissingError."""
        tasks = list(zip(unit.tasks, among, strict=True))
        bundles = [placing.bundle(_taken(task, alike)) for task, alike in tasks]
        labels = [placing.bundle_labels(task, nodes, among=alike) for task, alike in tasks]
        if any(labels):
            selectors = {"bundle_label_selector": labels}
        else:
            selectors = {}
        return Gang(placement_group(bundles, strategy="PACK", **selectors), among)

    def submit_gang(self, unit: Unit, gang: Gang) -> dict[Any, RayTask]:
        """Start all tasks of a gang in their places."""
        first = placement_group_table(gang.group)["bundles_to_node_id"][0]
        # Ray may have placed it on a node that joined a moment ago.
        master = next((node.address for node in placing.alive() if node.node_id == first), None)
        started: dict[Any, RayTask] = {}
        for index, (task, among) in enumerate(zip(unit.tasks, gang.among, strict=True)):
            place = placing.in_bundle(gang.group, index, _taken(task, among))
            function = self._function.options(**place, **self._environment)
            started |= self._start([(unit, task)], function, master=master, among=among)
        return started

    def _start(
        self,
        attempts: Sequence[tuple[Unit, Task]],
        function: Any,
        *,
        master: str | None,
        among: Alike | None,
    ) -> dict[Any, RayTask]:
        ordered = [
            self._order(unit, task, _taken(task, among), master=master) for unit, task in attempts
        ]
        generator = function.remote([order for order, _ in ordered], *self._packages)
        live = {number: each for number, (_, each) in enumerate(ordered)}
        return {generator: RayTask(attempts[0][1].shape, live, among)}

    def _order(
        self, unit: Unit, task: Task, taken: Task, *, master: str | None
    ) -> tuple[dict[str, Any], Live]:
        record = AttemptRecord(task.name, unit.attempt)
        # The first attempt has nothing before it: of thousands of quick tasks, none looks for a
        # file.
        is_resumed = task.continues is not None or self._plan.resume is not None
        has_before = unit.attempt > 1 or is_resumed
        before = self._records.checkpoint_parts(task.name) if has_before else ()
        checkpoint = [ray.put(part) for part in before]
        outputs = []

        for archive, parts in self._records.outputs(task.name):
            outputs.append((archive, [ray.put(part) for part in parts]))

        order = {
            "run": self._plan.run,
            "task": task.name,
            "index": task.index,
            "count": len(self._plan.tasks),
            "attempt": unit.attempt,
            "command": list(task.command),
            "env": task.env,
            "ray_environment": self._ray_environment,
            "has_own_package": self._has_own_package,
            "cpus": taken.cpus,
            "gpus": taken.gpus,
            "timeout": task.timeout,
            "outputs": list(task.outputs),
            "watch": task.watch,
            "grace": self._plan.stop_grace,
            "master": master,
            "together": len(unit.tasks) > 1,
            "every": self._plan.outputs_every,
            "limit": self._plan.outputs_limit,
            "held": sum(archive.bytes for archive, _ in outputs if not archive.whole)
            if outputs
            else None,
            "checkpoint": checkpoint,
            "restored": [
                {"removed": archive.removed, "parts": parts} for archive, parts in outputs
            ],
        }

        held = [*checkpoint, *(part for _, parts in outputs for part in parts)]
        return order, Live(unit, task, taken, record, held)

    def _shaped(
        self,
        task: Task,
        nodes: Sequence[Node],
        turn: int,
        avoided: frozenset[str],
        among: Alike | None,
    ) -> Any:
        """Return the remote function for tasks of this shape; they share it while the nodes stay
        the same.
        """
        if nodes is not self._known_nodes:
            self._known_nodes = nodes
            self._shapes = {}

        key = (task.shape, avoided, among and among.size)
        if key not in self._shapes:
            turn += task.index
            asked = placing.options(
                _taken(task, among),
                nodes,
                has_selectors=self._has_selectors,
                turn=turn,
                avoided=avoided,
                among=among,
            )

            function = self._function.options(**asked, **self._environment)
            if not self._has_selectors and (task.node_group is not None or avoided or among):
                return function

            self._shapes[key] = function

        return self._shapes[key]


def is_ready(gang: Gang) -> bool:
    return bool(placement_group_table(gang.group)["state"] == "CREATED")


def release(gang: Gang) -> None:
    """Give a gang's places back, and wait until Ray has taken them, so that the next gang can have
    them.
    """
    remove_placement_group(gang.group)
    give_up = time.monotonic() + 5.0
    while (
        placement_group_table(gang.group).get("state") not in (None, "REMOVED")
        and time.monotonic() < give_up
    ):
        time.sleep(0.02)


def _taken(task: Task, among: Alike | None) -> Task:
    return task if among is None else among.taken(task)


def _accepts(function: Any, **options: Any) -> bool:
    try:
        function.options(**options)
    except ValueError:
        return False
    return True
