"""What runs hold of a cluster and want free of it: each says so in a file, and leaves room for what
others say.
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
    """What a run holds: by node, amounts of Ray's resources, and under "tasks" by how many tasks.

    `actors` is what it wants free for what its tasks start through Ray, on any nodes; nothing holds
    that in Ray.
    """

    run: str
    nodes: Mapping[str, Mapping[str, float]]
    actors: Mapping[str, float] = field(default_factory=dict)
    waiting: int = 0  # tasks

    def all_of(self, name: str) -> float:
        """Return how much of a resource it holds or wants free."""
        return sum(held.get(name, 0.0) for held in self.nodes.values()) + self.actors.get(name, 0.0)


class Holdings:
    """The files of a cluster's runs: this run's, and those of others."""

    def __init__(self, run: str, logs: Path) -> None:
        """Find them below the directory of Ray's logs on the head."""
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
        """Say what this run holds on nodes and wants free for actors, and how many tasks it has in
        which state.
        """
        document: dict[str, Any] = {
            "driver": self._driver,
            "tasks": {**tasks, **ended},
            "nodes": nodes,
        }

        document["actors"] = dict(actors)
        text = json.dumps(document)
        if text == self._published:
            return

        # On a full disk others do not learn what this run holds; it goes on.
        with suppress(OSError):
            self._file.parent.mkdir(exist_ok=True)
            part = self._file.with_name(f".{self._file.name}")
            part.write_text(text)
            part.replace(self._file)
            self._published = text

    def others(self) -> list[Holding]:
        """Return what other runs hold; looked up once a second."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _EVERY
            self._known = list(self.read_others())
        return self._known

    def read_others(self) -> Iterator[Holding]:
        """Yield what other runs hold; those that died before they took it back are dead to Ray
        too.
        """
        paths = [path for path in self._file.parent.glob("*.json") if path != self._file]
        if paths:
            going = {job["JobID"] for job in state.jobs() if not job["IsDead"]}
        else:
            going = set()

        for path in paths:
            with suppress(OSError, ValueError, KeyError):
                found = json.loads(path.read_text())
                if found["driver"] in going:
                    yield Holding(
                        path.stem,
                        found["nodes"],
                        found.get("actors") or {},
                        found["tasks"]["waiting"],
                    )

    def close(self) -> None:
        """Take back what this run said."""
        with suppress(OSError):
            self._file.unlink(missing_ok=True)


def kept_free(
    unit: Sequence[Task], places: Sequence[Node], holdings: Iterable[Holding]
) -> list[str]:
    """Return the resources of which a unit would take what tasks that run want free, or lacks what
    it wants itself.

    There are none while no task wants any: Ray alone decides then.
    """
    found = list(holdings)
    if not any(each.actors for each in found) and not any(task.actors for task in unit):
        return []
    return fit.lacking(
        unit, places, {name: sum(each.all_of(name) for each in found) for name in RESOURCES}
    )


def in_numbers(task: Task, alive: Sequence[Node]) -> Task:
    """Return what a task waits for in numbers: its share of the first node that it may be of."""
    for one in shares.alike(task, alive):
        return one.taken(task)
    return task


def by_node(running: Iterable[tuple[str | None, Task]]) -> dict[str, dict[str, float]]:
    """Return how many tasks run on each node, and what they hold there; "" where their node is not
    known yet.
    """
    held: dict[str, dict[str, float]] = {}
    for node, task in running:
        here = held.setdefault(node or "", dict.fromkeys([*RESOURCES, "tasks"], 0.0))
        here["tasks"] += 1
        for name, amount in nodes.amounts(task).items():
            here[name] = round(here.get(name, 0.0) + amount, 4)
    return held
