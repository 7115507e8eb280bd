"""Take a run's event stream into results/, line by line: each line once, in order, however often it is read."""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from trainyard.errors import OutsideError
from trainyard.results import event as events
from trainyard.results import store
from trainyard.results.event import Event
from trainyard.results.store import RunDirectory


@dataclass(frozen=True)
class Output:
    """Something a task printed that was not known before."""

    task: str
    attempt: int
    text: bytes


class Journal:
    """The recorded part of a run's stream.

    Events go to events.jsonl, output to logs/. Both are written at once and in the stream's order, so that after a
    crash the last event says where to go on: `segment` is the file of the stream to read again from its beginning.
    Only one process records a run; another one gets `recording` False, sees the same and writes nothing. So does who
    only reads; no file is made for it.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._descriptors: list[int] = []
        self.recording = not store.read_only.get() and self._lock()
        if self.recording:
            _cut_torn_line(run.events)
        self.segment = 0
        self._next = 0
        for event in store.events(run):
            self._count(event)
        # How much of each log is here.
        self._sizes: dict[Path, int] = {}
        if self.recording:
            self._events = self._open(run.events, os.O_WRONLY | os.O_APPEND, 0o644)

    def apply(self, line: bytes) -> Output | Event | None:
        """Record one line of the stream; return what is new, or None if it was known.

        Raises OutsideError when a line between is missing, or it is no event.
        """
        event = events.parse(
            line,
            where=f"the stream of run {self._run.name}",
            hint="Does the cluster's address lead to the cluster that the run is on?",
        )
        seq = event["seq"]
        if seq < self._next:
            return None
        if seq > self._next:
            raise OutsideError(
                f"the run's stream has a gap: line {self._next} is missing, line {seq} came instead",
                hint=f"Try once more: invoke train.logs {self._run.name}",
            )
        if event["event"] != "output":
            self._record(line)
            self._count(event)
            return event
        text = event["text"].encode("utf-8", "surrogateescape")
        new = self._append(event["task"], event["attempt"], at=event["at"], output=text)
        self._next = seq + 1
        return Output(event["task"], event["attempt"], new) if new else None

    def end_for(self, error: str, *, state: str, exit_code: int, seconds: float, hint: str | None) -> Event:
        """Record that a run ended without saying so itself: its runner died, and this is how we know."""
        event = {
            "seq": self._next,
            "time": round(time.time(), 4),
            "event": "run-ended",
            "state": state,
            "exit": exit_code,
            "seconds": seconds,
            "counts": {},
            "error": error,
            "hint": hint,
            "by": "operator",
        }
        self._record(json.dumps(event).encode() + b"\n")
        self._count(event)
        return event

    def close(self) -> None:
        for descriptor in reversed(self._descriptors):
            os.close(descriptor)

    def _append(self, task: str, attempt: int, *, at: int, output: bytes) -> bytes:
        """Write what is new of some output that begins at an offset; return what was new.

        A log is open no longer: a run may have 10,000 tasks at once, and what was written outlives a killed process.
        Raises OutsideError when bytes between are missing.
        """
        path = self._run.log(task, attempt)
        if path not in self._sizes:
            self._sizes[path] = path.stat().st_size if path.exists() else 0
        size = self._sizes[path]
        if at > size:
            raise OutsideError(
                f"output of task {task} is missing: {at - size} bytes before offset {at}",
                where=str(path),
                hint="Another program changed this file, or the cluster lost a part of the stream.",
            )
        new = output[size - at :]
        if new and self.recording:
            with path.open("ab") as log:
                log.write(new)
        self._sizes[path] = size + len(new)
        return new

    def _open(self, path: Path, flags: int, mode: int) -> int:
        self._descriptors.append(os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, mode))
        return self._descriptors[-1]

    def _lock(self) -> bool:
        try:
            fcntl.flock(self._open(self._run.path / ".lock", os.O_RDWR, 0o600), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _record(self, line: bytes) -> None:
        if self.recording:
            os.write(self._events, line.strip() + b"\n")

    def _count(self, event: Event) -> None:
        self._next = event["seq"] + 1
        self.segment += event["event"] == "continues"


def _cut_torn_line(path: Path) -> None:
    """Remove a last line without its end: the process that wrote it was killed in the middle."""
    if path.exists():
        with path.open("r+b") as file:
            file.truncate(sum(len(line) for line in file if line.endswith(b"\n")))
