"""Check a run's events, and record each once, in the stream's order."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainyard_runner.wire import events
from trainyard_runner.wire.events import Continues, Event, RunEnded, StudyGrown, TaskOutput
from trainyard_runner.wire.outcome import State

from trainyard import lock
from trainyard.errors import OutsideError
from trainyard.results import store
from trainyard.results.store import ResultsError, RunDirectory


@dataclass(frozen=True)
class Output:
    """A new part of a task's output."""

    task: str
    attempt: int
    text: bytes


class Journal:
    """The recorded part of a run's stream.

    Events go to events.jsonl, output to logs/, a sweep's study to
    study.journal. Each line is written at once and in the stream's order. After
    a crash, the last event therefore says which `segment` (file of the stream)
    must be read again from its beginning.

    Only one process records a run. In all other processes `recording` is False:
    they read the same events and write nothing. With `may_record` False, this
    process never records.
    """

    def __init__(self, run: RunDirectory, *, may_record: bool = True) -> None:
        self._run = run
        self._lock: int | None = None
        # The reason why nothing can be recorded; callers still show events.
        self.problem: ResultsError | None = None

        if may_record and not store.read_only.get():
            try:
                with store.written(run.path):
                    self._lock = lock.taken(run.path / ".lock")
                    if self._lock is not None:
                        _cut_torn_line(run.events)
            except ResultsError as error:
                self.problem = error

        self.recording = self._lock is not None and self.problem is None
        self.segment = 0
        # The sizes of the logs and of the study here.
        self._sizes: dict[Path, int] = {}
        self._next = 0
        for event in recorded(run):
            self._count(event)

    def apply(self, line: bytes) -> Output | Event | None:
        """Record one line of the stream; return its event or output if new.

        Known lines return None. Lines of a sweep's study are recorded, but
        return None. Raises OutsideError if a line before this one is missing,
        or if this one is no event.
        """
        hint = "Does the cluster's address lead to the cluster that the run is on?"
        event = _parse(line, where=f"the stream of run {self._run.name}", hint=hint)
        if event.seq < self._next:
            return None
        if event.seq > self._next:
            raise OutsideError(
                f"the run's stream has a gap: line {self._next} is missing, line {event.seq} came "
                "instead",
                hint=f"Try once more: trainyard train.logs {self._run.name}",
            )

        if isinstance(event, TaskOutput):
            path = self._run.log(event.task, event.attempt)
        elif isinstance(event, StudyGrown):
            path = self._run.study
        else:
            self._record(line)
            self._count(event)
            return event

        text = event.text.encode("utf-8", "surrogateescape")
        new = self._append(path, at=event.at, text=text)
        self._next = event.seq + 1
        if new and isinstance(event, TaskOutput):
            return Output(event.task, event.attempt, new)
        return None

    def end_for(
        self, error: str, *, state: State, exit_code: int, seconds: float, hint: str | None
    ) -> RunEnded:
        """Record the end of a run whose runner died; return the event."""
        event = RunEnded(
            state,
            exit_code,
            seconds,
            counts={},
            error=error,
            hint=hint,
            by="operator",
            seq=self._next,
            time=round(time.time(), 4),
        )
        self._record(json.dumps(event.line()).encode() + b"\n")
        self._count(event)
        return event

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)

    def _append(self, path: Path, *, at: int, text: bytes) -> bytes:
        """Append the part of a text that a file lacks, and return that part.

        The text begins at the file's offset `at`. The file is closed each time:
        a run may have 10,000 tasks at once, and a killed process must not lose
        what it wrote. Raises OutsideError if the file lacks bytes before `at`.
        """
        if path not in self._sizes:
            if path.is_file():
                self._sizes[path] = path.stat().st_size
            else:
                self._sizes[path] = 0

        size = self._sizes[path]
        if at > size:
            raise OutsideError(
                f"{path.name} has a gap: {at - size} bytes are missing before offset {at}",
                where=str(path),
                hint="Another program changed this file, or the cluster lost part of the stream.",
            )

        new = text[size - at :]
        if new and self.recording:
            with store.written(path), path.open("ab") as file:
                file.write(new)

        self._sizes[path] = size + len(new)
        return new

    def _record(self, line: bytes) -> None:
        if self.recording:
            with store.written(self._run.events), self._run.events.open("ab") as file:
                file.write(line.strip() + b"\n")

    def _count(self, event: Event) -> None:
        self._next = event.seq + 1
        self.segment += isinstance(event, Continues)


def recorded(run: RunDirectory) -> Iterator[Event]:
    """Yield the recorded events, up to a last line that a crash has cut off."""
    if not run.events.exists():
        return
    with run.events.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                return
            yield _parse(line, where=str(run.events), hint="Another program has changed this file.")


def _cut_torn_line(path: Path) -> None:
    """Remove an incomplete last line, whose writer was killed."""
    if path.exists():
        with path.open("r+b") as file:
            file.truncate(sum(len(line) for line in file if line.endswith(b"\n")))


def _parse(line: bytes, *, where: str, hint: str) -> Event:
    """Parse an event. Raises OutsideError for any other line."""
    try:
        return events.read(json.loads(line))
    # RecursionError: thousands of nested lists
    except (ValueError, RecursionError) as error:
        raise OutsideError(
            f"not an event of Trainyard's runner: {error}", where=where, hint=hint
        ) from error
