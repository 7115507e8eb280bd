"""Take a run's event stream into results/, line by line: each line once, in order, however often it is read."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from trainyard.errors import OutsideError
from trainyard.results import event as events
from trainyard.results import store
from trainyard.results.event import Event
from trainyard.results.store import RunDirectory

# A run may have 10,000 tasks at once; the usual limit of open files is 1,024.
_OPEN_AT_ONCE = 128


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
        self._logs = _Logs(run, recording=self.recording)
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
        new = self._logs.append(event["task"], event["attempt"], at=event["at"], output=text)
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
        """Close every file and let another process record."""
        self._logs.close()
        for descriptor in reversed(self._descriptors):
            os.close(descriptor)

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


@dataclass
class _Log:
    size: int
    descriptor: int | None = None


class _Logs:
    """Appends output to the logs of one run; unbuffered, so that what was written outlives a killed process.

    With recording off nothing is written and only the sizes are kept: another process records, and this one looks on.
    """

    def __init__(self, run: RunDirectory, *, recording: bool) -> None:
        self._run = run
        self._recording = recording
        self._logs: OrderedDict[tuple[str, int], _Log] = OrderedDict()

    def append(self, task: str, attempt: int, *, at: int, output: bytes) -> bytes:
        """Write what is new of some output that begins at an offset; return what was new.

        Raises OutsideError when bytes between are missing.
        """
        log = self._log(task, attempt)
        if at > log.size:
            raise OutsideError(
                f"output of task {task} is missing: {at - log.size} bytes before offset {at}",
                where=str(self._run.log(task, attempt)),
                hint="Another program changed this file, or the cluster lost a part of the stream.",
            )
        new = left = output[log.size - at :]
        while left and log.descriptor is not None:
            left = left[os.write(log.descriptor, left) :]
        log.size += len(new)
        return new

    def close(self) -> None:
        while self._logs:
            self._close_oldest()

    def _log(self, task: str, attempt: int) -> _Log:
        key = (task, attempt)
        if key not in self._logs:
            self._logs[key] = self._open(self._run.log(task, attempt))
            if self._recording and len(self._logs) > _OPEN_AT_ONCE:
                self._close_oldest()
        self._logs.move_to_end(key)
        return self._logs[key]

    def _close_oldest(self) -> None:
        _, log = self._logs.popitem(last=False)
        if log.descriptor is not None:
            os.close(log.descriptor)

    def _open(self, path: Path) -> _Log:
        if not self._recording:
            return _Log(path.stat().st_size if path.exists() else 0)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        return _Log(os.fstat(descriptor).st_size, descriptor)


def _cut_torn_line(path: Path) -> None:
    """Remove a last line without its end: the process that wrote it was killed in the middle."""
    if path.exists():
        with path.open("r+b") as file:
            file.truncate(sum(len(line) for line in file if line.endswith(b"\n")))
