"""What a run's directory tells: how it stands, what each attempt used, where each checkpoint came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainyard.errors import RequestError
from trainyard.results import store
from trainyard.results.state import Attempt, RunState, Task
from trainyard.results.store import RunDirectory

_NOTES = 50
# Files as resolved are shown whole; one of 10,000 tasks would make the page unusable.
_LONGEST_FILE = 200_000

Key = tuple[str, int]  # task, attempt


@dataclass(frozen=True)
class Use:
    """What an attempt took of its node."""

    cpu_seconds: float | None
    memory: int | None  # bytes, at its peak


@dataclass(frozen=True)
class Saved:
    """The newest checkpoint of an attempt."""

    attempt: int
    at: float
    count: int


@dataclass
class Story:
    """A run, read once from its directory."""

    run: RunDirectory
    record: Mapping[str, Any]
    state: RunState
    last_event: float = 0.0
    uses: dict[Key, Use] = field(default_factory=dict)
    saved: dict[Key, Saved] = field(default_factory=dict)
    restored: dict[Key, Saved] = field(default_factory=dict)
    gpus: dict[Key, str] = field(default_factory=dict)
    nodes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _newest: dict[str, Saved] = field(default_factory=dict)  # by task

    @property
    def version(self) -> str:
        """Return which Trainyard dispatched it."""
        return str((self.record.get("versions") or {}).get("trainyard", ""))

    def ended_at(self, attempt: Attempt) -> float:
        """Return when an attempt ended; of one that goes on, what is known so far."""
        if attempt.seconds is None:
            return max(self.last_event, attempt.started)
        return attempt.started + attempt.seconds

    def take(self, event: Mapping[str, Any]) -> None:
        """Take in one event."""
        self.state.apply(event)
        self.last_event = max(self.last_event, float(event["time"]))
        kind = event["event"]
        if kind == "note" and len(self.notes) < _NOTES:
            self.notes.append(str(event.get("text", "")))
        elif kind == "node":
            self.nodes[str(event.get("name", ""))] = event
        if kind not in ("attempt-started", "attempt-ended", "checkpoint"):
            return
        key = (event["task"], event["attempt"])
        if kind == "attempt-ended":
            self.uses[key] = Use(event.get("cpu_seconds"), event.get("max_rss"))
        elif kind == "checkpoint":
            count = self.saved[key].count + 1 if key in self.saved else 1
            self.saved[key] = self._newest[key[0]] = Saved(key[1], float(event["time"]), count)
        else:
            self._started(key, event)

    def where(self, task: str, attempt: Attempt) -> str:
        """Return the node of an attempt, and its GPUs if it had any."""
        gpus = self.gpus.get((task, attempt.number))
        return f"{attempt.node or 'no node'}, GPU {gpus}" if gpus else attempt.node or ""

    def _started(self, key: Key, event: Mapping[str, Any]) -> None:
        if key[0] in self._newest:
            self.restored[key] = self._newest[key[0]]
        if event.get("gpus"):
            self.gpus[key] = ", ".join(map(str, event["gpus"]))


def read(directory: Path) -> Story:
    """Read a run's directory.

    Raises RequestError when it is none.
    """
    run = RunDirectory(directory)
    if not (directory / "run.json").exists():
        raise RequestError(f"there is no run in {directory}", hint="See `invoke train.list`.")
    record = run.record()
    state = RunState(
        run=str(record.get("run", run.name)),
        cluster=str(record.get("cluster", "")),
        job=record.get("job"),
        tasks=record.get("tasks", ()),
    )
    story = Story(run, record, state)
    for event in store.events(run):
        story.take(event)
    return story


def resolved(story: Story, name: str) -> str | None:
    """Return one of the run's two files as resolved; None if there is none."""
    path = story.run.path / name
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", errors="replace") as file:
        text = file.read(_LONGEST_FILE + 1)
    return text if len(text) <= _LONGEST_FILE else f"{text[:_LONGEST_FILE]}\n... the rest is in {name}\n"


def attempts(story: Story) -> list[tuple[Task, Attempt]]:
    """Return every attempt with its task, in the order of tasks."""
    return [(task, attempt) for task in story.state.tasks.values() for attempt in task.attempts]
