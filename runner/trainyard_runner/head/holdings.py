"""The resources that runs hold; each run publishes its own in a file.

A run reads the files of other runs, so that its tasks leave enough resources
for the actors of those runs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray._private import state

from trainyard_runner.wire import fit, names, nodes, shares
from trainyard_runner.wire.fit import RESOURCES
from trainyard_runner.wire.nodes import Node
from trainyard_runner.wire.outcome import State
from trainyard_runner.wire.plan import Task

_EVERY = 1.0


@dataclass(frozen=True)
class Holding:
    """The resources that a run holds.

    `nodes`: amounts by node's name; the entry "tasks" is the number of the
    run's tasks there. `actors`: amounts that must stay free, on any nodes, for
    actors of the run's tasks. Ray does not reserve them.
    """

    run: str
    nodes: Mapping[str, Mapping[str, float]]
    actors: Mapping[str, float] = field(default_factory=dict)
    waiting: int = 0  # tasks

    def all_of(self, name: str) -> float:
        """Sum what the run holds of a resource, and needs free for actors."""
        return sum(held.get(name, 0.0) for held in self.nodes.values()) + self.actors.get(name, 0.0)


class Holdings:
    """Writes this run's file of holdings, and reads those of other runs."""

    def __init__(self, run: str, logs: Path) -> None:
        """`logs`: Ray's directory of logs on the head."""
        self._file = logs / names.holdings(run)
        self._driver = ray.get_runtime_context().get_job_id()
        self._published = ""
        self._known: list[Holding] = []
        self._due = 0.0

    def publish(
        self,
        *,
        tasks: Mapping[str, int],
        ended: Mapping[State, int],
        nodes: Mapping[str, Mapping[str, float]],
        actors: Mapping[str, float],
    ) -> None:
        """Write this run's file if its content changed.

        A failed write raises nothing. `tasks`: how many tasks run and wait.
        `ended`: how many have ended, by state. `nodes`, `actors`: as in
        Holding.
        """
        document: dict[str, Any] = {
            "driver": self._driver,
            "tasks": {**tasks, **ended},
            "nodes": nodes,
            "actors": dict(actors),
        }
        text = json.dumps(document)
        if text == self._published:
            return

        # Only other runs and `cluster.status` read the file: a full disk must not end this run.
        with suppress(OSError):
            self._file.parent.mkdir(exist_ok=True)
            # Other runs read all files whose names end with .json.
            part = self._file.with_suffix(".part")
            part.write_text(text)
            part.replace(self._file)
            self._published = text

    def others(self) -> list[Holding]:
        """Return the holdings of other runs, at most one second old."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _EVERY
            self._known = list(self.read_others())
        return self._known

    def read_others(self) -> Iterator[Holding]:
        """Read the holdings of other runs; skip those whose driver is dead."""
        paths = [path for path in self._file.parent.glob("*.json") if path != self._file]
        if not paths:
            return

        living = {job["JobID"] for job in state.jobs() if not job["IsDead"]}
        for path in paths:
            with suppress(OSError, ValueError, KeyError):
                document = json.loads(path.read_text())
                if document["driver"] in living:
                    actors = document.get("actors") or {}
                    waiting = document["tasks"]["waiting"]
                    yield Holding(path.stem, document["nodes"], actors, waiting)

    def close(self) -> None:
        with suppress(OSError):
            self._file.unlink(missing_ok=True)


def kept_free(
    unit: Sequence[Task], places: Sequence[Node], holdings: Iterable[Holding]
) -> list[str]:
    """Return the resources that are too few for a unit and all runs' actors.

    The unit's own actors count, too. Returns [] if no task has actors: then Ray
    alone decides when a task starts.
    """
    of_runs = list(holdings)
    has_actors = any(holding.actors for holding in of_runs) or any(task.actors for task in unit)
    if not has_actors:
        return []

    taken = {}
    for name in RESOURCES:
        taken[name] = sum(holding.all_of(name) for holding in of_runs)
    return fit.lacking(unit, places, taken)


def in_numbers(task: Task, alive: Sequence[Node]) -> Task:
    """Replace a task's share by amounts: its part of the first node that fits.

    A task without a share, or one that fits no node, is returned unchanged.
    """
    sizes = shares.alike(task, alive)
    for alike in sizes:
        return alike.taken(task)
    return task


def by_node(running: Iterable[tuple[str | None, Task]]) -> dict[str, dict[str, float]]:
    """Sum tasks' amounts by node; the entry "tasks" is the number of tasks.

    `running`: (node's name or None, task). Tasks without a node are under "".
    """
    held: dict[str, dict[str, float]] = {}
    for node, task in running:
        here = held.setdefault(node or "", dict.fromkeys([*RESOURCES, "tasks"], 0.0))
        here["tasks"] += 1
        for name, amount in nodes.amounts(task).items():
            here[name] = round(here.get(name, 0.0) + amount, 4)
    return held
