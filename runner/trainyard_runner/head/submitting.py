"""Submits attempts to Ray: single tasks, or all tasks of a gang at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
from trainyard_runner.wire.order import Order, Restored
from trainyard_runner.wire.plan import Plan, Shape, Task
from trainyard_runner.wire.shares import Alike

_HELD_BACK_AFTER = 8


@dataclass
class RayTask:
    """One Ray task, and the attempts that it runs in turn."""

    shape: Shape
    open: dict[int, Live]  # attempts that have not ended, by their order's number
    among: Alike | None = None  # nodes of one size, where the attempts get their shares
    node_id: str | None = None
    avoided: frozenset[str] = frozenset()  # ids of nodes on which the Ray task must not run
    is_withdrawn: bool = False

    @property
    def is_placed(self) -> bool:
        return self.node_id is not None or any(live.record.is_ready for live in self.open.values())


@dataclass
class Live:
    """An attempt that was submitted to Ray.

    `taken` is the attempt's task, with a share of a node replaced by CPUs, GPUs
    and memory.
    """

    unit: Unit
    task: Task
    taken: Task
    record: AttemptRecord
    # References to the checkpoint and outputs with which the attempt begins. They are dropped
    # at the attempt's first message: the node has the objects by then.
    held: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Place:
    """Where a unit may run.

    `among`: for each task, nodes of one size, one of which gives the task its
    share; None without a share. `avoided`: ids of nodes on which no task of the
    unit may run.
    """

    among: Sequence[Alike | None]
    avoided: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Gang:
    """The placement group requested for a gang; `among` as in Place."""

    group: PlacementGroup
    among: Sequence[Alike | None]


class Sent(NamedTuple):
    """The uploaded job, in the forms in which tasks get it.

    `job`: the package's name and a reference to its content in Ray's object
    store, or None if the job has no package. `ray_environment`: the runtime_env
    of a command that connects to Ray. With `has_own_package`, each attempt gets
    a copy of the job's package in its runtime_env.
    """

    job: shipped.Package | None
    ray_environment: dict[str, Any]
    has_own_package: bool


class Submitter:
    """Turns units into Ray tasks."""

    def __init__(
        self, plan: Plan, records: Records, *, runner: shipped.Package, sent: Sent
    ) -> None:
        """`runner`: a package that nodes fetch."""
        self._plan = plan
        self._records = records
        self._sent = sent
        self._packages = (runner, sent.job)
        # Without max_calls=0, Ray ends a worker after each GPU task; a new one takes 1.2 to 1.9 s.
        self._function = ray.remote(
            max_calls=0,
            max_retries=0,
            num_returns="streaming",
            _generator_backpressure_num_objects=_HELD_BACK_AFTER,
        )(shipped.attempts)

        # Only attempts get the runtime_env: Ray may have to install its packages first.
        self._environment: dict[str, Any] = {}
        if plan.runtime_env:
            self._environment["runtime_env"] = plan.runtime_env

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
        """Submit units of one shape, one task each, as a single Ray task.

        The Ray task runs the units in order. Returns a dict with the RayTask
        under its generator of messages. `avoided` and `among`: as in Place, for
        every task. Raises NodeMissingError.
        """
        function = self._shaped(units[0].tasks[0], nodes, units[0].attempt, avoided, among)
        attempts = [(unit, unit.tasks[0]) for unit in units]
        started = self._start(attempts, function, master=None, among=among)
        for ray_task in started.values():
            ray_task.avoided = avoided
        return started

    def reserve(self, unit: Unit, nodes: Sequence[Node], among: Sequence[Alike | None]) -> Gang:
        """Request a placement group for a gang; do not wait for its placement.

        Raises NodeMissingError.
        """
        tasks = list(zip(unit.tasks, among, strict=True))
        bundles = [placing.bundle(_taken(task, alike)) for task, alike in tasks]
        labels = [placing.bundle_labels(task, nodes, among=alike) for task, alike in tasks]
        selectors: dict[str, Any] = {}
        if any(labels):
            selectors["bundle_label_selector"] = labels
        return Gang(placement_group(bundles, strategy="PACK", **selectors), among)

    def submit_gang(self, unit: Unit, gang: Gang) -> dict[Any, RayTask]:
        """Submit a gang's tasks to its placement group, which must be ready."""
        first = placement_group_table(gang.group)["bundles_to_node_id"][0]
        # Ask Ray again: the first task's node may have joined a moment ago.
        addresses = {node.node_id: node.address for node in placing.alive()}
        master = addresses.get(first)

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
        orders = []
        open_attempts = {}
        for number, (unit, task) in enumerate(attempts):
            taken = _taken(task, among)
            order, references = self._order(unit, task, taken, master=master)
            orders.append(order)
            record = AttemptRecord(task.name, unit.attempt)
            open_attempts[number] = Live(unit, task, taken, record, references)

        generator = function.remote(orders, *self._packages)
        shape = attempts[0][1].shape
        return {generator: RayTask(shape, open_attempts, among)}

    def _order(
        self, unit: Unit, task: Task, taken: Task, *, master: str | None
    ) -> tuple[Order, list[Any]]:
        """Return an order, and references to its checkpoint and outputs.

        Ray deletes objects without references: keep the references until the
        node has the objects.
        """
        checkpoint = []
        is_resumed = task.continues is not None or self._plan.resume is not None
        # Other attempts have no checkpoint. Looking for the file would take time in jobs of
        # thousands of quick tasks.
        if unit.attempt > 1 or is_resumed:
            checkpoint = [ray.put(part) for part in self._records.checkpoint_parts(task.name)]

        references = list(checkpoint)
        restored: list[Restored] = []
        held = None
        for archive, archive_parts in self._records.outputs(task.name):
            parts = [ray.put(part) for part in archive_parts]
            references += parts
            restored.append({"removed": list(archive.removed), "parts": parts})
            held = held or 0
            if not archive.whole:
                held += archive.bytes

        order: Order = {
            "run": self._plan.run,
            "task": task.name,
            "index": task.index,
            "count": len(self._plan.tasks),
            "attempt": unit.attempt,
            "command": list(task.command),
            "env": task.env,
            "ray_environment": self._sent.ray_environment,
            "has_own_package": self._sent.has_own_package,
            "cpus": taken.cpus,
            "gpus": taken.gpus,
            "timeout": task.timeout,
            "outputs": list(task.outputs),
            "watch": task.watch,
            "master": master,
            "together": len(unit.tasks) > 1,
            "every": self._plan.outputs_every,
            "limit": self._plan.outputs_limit,
            "held": held,
            "checkpoint": checkpoint,
            "restored": restored,
        }
        return order, references

    def _shaped(
        self,
        task: Task,
        nodes: Sequence[Node],
        turn: int,
        avoided: frozenset[str],
        among: Alike | None,
    ) -> Any:
        """Return the remote function with the options of a task's shape.

        The function is cached while the nodes stay the same, unless `turn`
        chooses the task's node.
        """
        if nodes is not self._known_nodes:
            self._known_nodes = nodes
            self._shapes = {}

        key = (task.shape, avoided, among and among.size)
        if key in self._shapes:
            return self._shapes[key]

        asked = placing.options(
            _taken(task, among),
            nodes,
            has_selectors=self._has_selectors,
            turn=turn + task.index,
            avoided=avoided,
            among=among,
        )
        function = self._function.options(**asked, **self._environment)
        has_turns = task.node_group is not None or avoided or among
        if self._has_selectors or not has_turns:
            self._shapes[key] = function
        return function


def is_ready(gang: Gang) -> bool:
    return bool(placement_group_table(gang.group)["state"] == "CREATED")


def release(gang: Gang) -> None:
    """Remove a gang's placement group; wait at most 5 s for the removal."""
    remove_placement_group(gang.group)
    give_up = time.monotonic() + 5.0
    while time.monotonic() < give_up:
        if placement_group_table(gang.group).get("state") in (None, "REMOVED"):
            return
        time.sleep(0.02)


def _taken(task: Task, among: Alike | None) -> Task:
    if among is None:
        return task
    return among.taken(task)


def _accepts(function: Any, **options: Any) -> bool:
    try:
        function.options(**options)
    except ValueError:
        return False
    return True
