"""The resources that each run of a cluster holds: each run publishes its own in a file.

A run reads the others' files so that its tasks leave the room that other runs want for actors.
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

    `nodes`: amounts by node's name; the entry "tasks" is the number of its tasks there. `actors`:
    the room that it wants free on any nodes for actors of its tasks. Ray does not reserve that
    room.
    """

    run: str
    nodes: Mapping[str, Mapping[str, float]]
    actors: Mapping[str, float] = field(default_factory=dict)
    waiting: int = 0  # tasks

    def all_of(self, name: str) -> float:
        """Return how much of a resource the run holds on all nodes or wants free."""
        return sum(held.get(name, 0.0) for held in self.nodes.values()) + self.actors.get(name, 0.0)


class Holdings:
    """Writes this run's file of holdings, and reads those of other runs."""

    def __init__(self, run: str, logs: Path) -> None:
        """Keep the files in a directory below Ray's `logs` on the head."""
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
        """Write this run's file, if it changed: holdings, room for actors, numbers of tasks by state.

        If the file cannot be written, nothing is raised.
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
            part = self._file.with_name(f".{self._file.name}")
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
        """Read the files of other runs; yield the holdings of those whose driver Ray reports alive."""
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
    """Return the resources of which too little is left for a unit and the actors of all runs.

    Room for the unit's own actors counts, too. Returns [] while no run wants room for actors: then
    Ray alone decides when a task starts.
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
    """Return a task with its share as amounts, of the first size of nodes that it fits.

    A task without a share, or one that fits no node, is returned as it is.
    """
    sizes = shares.alike(task, alive)
    for alike in sizes:
        return alike.taken(task)
    return task


def by_node(running: Iterable[tuple[str | None, Task]]) -> dict[str, dict[str, float]]:
    """Return the amounts that tasks hold, by node's name; the entry "tasks" is their number.

    `running`: (node's name or None, task). Tasks without a node are under "".
    """
    held: dict[str, dict[str, float]] = {}
    for node, task in running:
        here = held.setdefault(node or "", dict.fromkeys([*RESOURCES, "tasks"], 0.0))
        here["tasks"] += 1
        for name, amount in nodes.amounts(task).items():
            here[name] = round(here.get(name, 0.0) + amount, 4)
    return held
