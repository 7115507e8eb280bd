"""What a run tells about itself while it goes on: for what its tasks wait, and what it holds that others wait for."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray._private import state

from trainyard_runner import names, waiting
from trainyard_runner.nodes import Node
from trainyard_runner.plan import Plan, Task
from trainyard_runner.stream import EventStream
from trainyard_runner.submitting import Live
from trainyard_runner.units import State, Unit
from trainyard_runner.waiting import Holding, Line, Reason

# Nothing has started for so long: then it is worth a line for what the rest waits.
_QUIET = 5.0
_EVERY = 1.0
_MOST_LINES = 3


class Watch:
    """Looks at the cluster once a second while tasks wait, and writes down what this run holds when that changes."""

    def __init__(self, plan: Plan, logs: Path, stream: EventStream) -> None:
        self._plan = plan
        self._stream = stream
        self._file = logs / names.holdings(plan.run)
        self._driver = ray.get_runtime_context().get_job_id()
        self._published = self._said = ""
        self._known: set[tuple[Any, ...]] = set()
        self._next = 0.0

    def look(
        self,
        lines: Iterable[Sequence[Unit]],
        live: Iterable[Live],
        alive: Sequence[Node],
        *,
        ended: Mapping[State, int],
        idle: float,
    ) -> None:
        """Publish what `live` attempts hold; after some idle seconds also say for what the rest waits, in `lines`."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVERY
        started = [one for one in live if one.record.is_started]
        held = _held((one.record.node, one.task) for one in started)
        lacking = _waiting(lines, (one.task for one in live if not (one.record.is_started or one.record.is_ready)))
        counts: dict[str, int] = {"running": len(started), "waiting": sum(line.count for line in lacking)}
        self._publish({"driver": self._driver, "tasks": {**counts, **ended}, "nodes": held})
        if idle < _QUIET or not lacking:
            self._said = ""
            return
        own = Holding(self._plan.run, held)
        cluster = waiting.Cluster(alive, state.available_resources_per_node(), [own, *self._others()])
        reasons = [
            waiting.explain(line, self._plan.gate, cluster, run=self._plan.run) for line in lacking[:_MOST_LINES]
        ]
        self._say([reason for reason in reasons if reason])

    def close(self) -> None:
        """Take back what was written for others."""
        with suppress(OSError):
            self._file.unlink(missing_ok=True)

    def _publish(self, document: Mapping[str, Any]) -> None:
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

    def _others(self) -> Iterator[Holding]:
        """Yield what other runs hold; those that died before they took it back are dead to Ray too."""
        going = {job["JobID"] for job in state.jobs() if not job["IsDead"]}
        for path in self._file.parent.glob("*.json"):
            with suppress(OSError, ValueError):
                found = json.loads(path.read_text())
                if path != self._file and found["driver"] in going:
                    yield Holding(path.stem, found["nodes"])

    def _say(self, reasons: Sequence[Reason]) -> None:
        text = "; ".join(reason.text for reason in reasons)
        if not text or text == self._said:
            return
        self._said = text
        key = tuple((reason.needs, *reason.holders) for reason in reasons)
        self._stream.write(
            "waiting",
            tasks=sum(reason.tasks for reason in reasons),
            needs=[reason.needs for reason in reasons],
            holders=sorted({holder for reason in reasons for holder in reason.holders}),
            again=key in self._known,
            text=text,
        )
        self._known.add(key)


def _waiting(lines: Iterable[Sequence[Unit]], submitted: Iterable[Task]) -> list[Line]:
    """Return the tasks that have not started, those of one shape together."""
    found: dict[tuple[Any, ...], Line] = {}
    for line in filter(None, lines):
        found[line[0].tasks[0].shape] = Line(sum(len(unit.tasks) for unit in line), line[0].tasks)
    for task in submitted:
        known = found.get(task.shape, Line(0, (task,)))
        found[task.shape] = replace(known, count=known.count + 1)
    return list(found.values())


def _held(running: Iterable[tuple[str | None, Task]]) -> dict[str, dict[str, float]]:
    held: dict[str, dict[str, float]] = {}
    for node, task in running:
        here = held.setdefault(node or "", dict.fromkeys([*waiting.RESOURCES, "tasks"], 0.0))
        here["tasks"] += 1
        for name, field in waiting.RESOURCES.items():
            here[name] = round(here[name] + (getattr(task, field) or 0), 4)
    return held
