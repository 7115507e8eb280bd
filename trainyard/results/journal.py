"""A run's events: each is checked, and recorded in results/ once, in the order of the stream."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard import lock
from trainyard.errors import OutsideError
from trainyard.results import store
from trainyard.results.store import ResultsError, RunDirectory

Event = Mapping[str, Any]
_NONE = type(None)

# The JSON types that each field may have, in any event; fields that are not listed are unchecked.
_TYPES: dict[str, tuple[type, ...]] = {
    name: types
    for types, names in (
        ((str,), "event task text state outcome file sha256 name detail"),
        ((str, _NONE), "node node_id error reason hint group cpu system driver python ray"),
        ((int,), "seq attempt at exit bytes archive_bytes files number trial"),
        ((int, float, _NONE), "time seconds exit_code cpu_seconds max_rss cores memory"),
        ((bool,), "ok skipped whole each_attempt"),
        ((list,), "gpus tail needs holders removed left_out lost_outputs absent_outputs"),
        ((int, list), "tasks"),
        ((dict, _NONE), "output packages params sweep room brought not_brought undeclared"),
    )
    for name in names.split()
}
# The limits of numbers that are sizes. All other numbers must be below 1e11, as every date in Unix
# seconds and every duration is.
_MOST = {"bytes": 1e16, "archive_bytes": 1e16, "max_rss": 1e16, "memory": 1e16}
# Fields that are lists in one kind of event, and may be something else in others.
_LISTS = {"metric": ("values",), "trial-started": ("tasks",), "trial-ended": ("values",)}
_REQUIRED = {
    "output": ("task", "attempt", "at", "text"),
    "attempt-started": ("task", "attempt"),
    "attempt-ended": ("task", "attempt", "outcome"),
    "task-ended": ("task", "state"),
    "checkpoint": ("task", "attempt"),
    "outputs": (
        "task",
        "attempt",
        "number",
        "file",
        "bytes",
        "sha256",
        "whole",
        "removed",
        "each_attempt",
    ),
    "check": ("name", "ok", "detail"),
    "node": ("name",),
    "gate": ("ok", "seconds"),
    "note": ("text",),
    "waiting": ("text",),
    "drivers-waiting": ("text",),
    "kept-free": ("room",),
    "metric": ("task", "attempt", "values"),
    "trial-started": ("trial", "params", "tasks"),
    "trial-ended": ("trial", "outcome"),
    "study": ("at", "text"),
    "run-ended": ("state", "exit", "seconds"),
}


@dataclass(frozen=True)
class Output:
    """A part of a task's output that was not known before."""

    task: str
    attempt: int
    text: bytes


class Journal:
    """The recorded part of a run's stream.

    Events go to events.jsonl, output to logs/, a sweep's study to study.journal. Each line is
    written at once and in the stream's order, so that after a crash the last event tells where to
    continue: `segment` is the number of the stream's file that must be read again from its
    beginning.

    Only one process records a run. In all others `recording` is False: they see the same events,
    and write nothing. With `may_record` False the process does not try to record, and makes no
    file.
    """

    def __init__(self, run: RunDirectory, *, may_record: bool = True) -> None:
        self._run = run
        self._lock: int | None = None
        # The reason why nothing can be recorded; callers show events all the same.
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
        # The size of each log on this machine.
        self._sizes: dict[Path, int] = {}
        self._next = 0
        for event in recorded(run):
            self._count(event)

    def apply(self, line: bytes) -> Output | Event | None:
        """Record one line of the stream; return its event or new output, None if it was known.

        Lines of a sweep's study are recorded, but return None. Raises OutsideError if a line before
        this one is missing, or if this line is no event.
        """
        hint = "Does the cluster's address lead to the cluster that the run is on?"
        event = _parse(line, where=f"the stream of run {self._run.name}", hint=hint)
        seq = event["seq"]
        if seq < self._next:
            return None
        if seq > self._next:
            raise OutsideError(
                f"the run's stream has a gap: line {self._next} is missing, line {seq} came instead",
                hint=f"Try once more: trainyard train.logs {self._run.name}",
            )
        if event["event"] not in ("output", "study"):
            self._record(line)
            self._count(event)
            return event

        is_study = event["event"] == "study"
        if is_study:
            path = self._run.study
        else:
            path = self._run.log(event["task"], event["attempt"])

        text = event["text"].encode("utf-8", "surrogateescape")
        new = self._append(path, at=event["at"], text=text)
        self._next = seq + 1
        if new and not is_study:
            return Output(event["task"], event["attempt"], new)
        return None

    def end_for(
        self, error: str, *, state: str, exit_code: int, seconds: float, hint: str | None
    ) -> Event:
        """Record the end of a run whose runner died before it could do so; return the event."""
        event = {
            "seq": self._next,
            "time": round(time.time(), 4),
            "event": "run-ended",
            "by": "operator",
            "state": state,
            "exit": exit_code,
            "seconds": seconds,
            "counts": {},
            "error": error,
            "hint": hint,
        }
        self._record(json.dumps(event).encode() + b"\n")
        self._count(event)
        return event

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)

    def _append(self, path: Path, *, at: int, text: bytes) -> bytes:
        """Append the part of a text that a file lacks, and return that part.

        The text begins at the file's offset `at`. The file is closed each time, because a run may
        have 10,000 tasks at once, and a killed process must not lose what it wrote. Raises
        OutsideError if the file lacks bytes before `at`.
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
                hint="Another program changed this file, or the cluster lost a part of the stream.",
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
        self._next = event["seq"] + 1
        self.segment += event["event"] == "continues"


def recorded(run: RunDirectory) -> Iterator[dict[str, Any]]:
    """Yield the recorded events, up to a last line that a crash has cut off."""
    if not run.events.exists():
        return
    with run.events.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                return
            yield _parse(line, where=str(run.events), hint="Another program has changed this file.")


def _cut_torn_line(path: Path) -> None:
    """Remove a last line without a line end, in which its writer was killed."""
    if path.exists():
        with path.open("r+b") as file:
            file.truncate(sum(len(line) for line in file if line.endswith(b"\n")))


def _parse(line: bytes, *, where: str, hint: str) -> dict[str, Any]:
    """Return the event in a line. Raises OutsideError if its fields are not those of an event."""
    try:
        event: dict[str, Any] = json.loads(line)
        if not isinstance(event, dict):
            raise ValueError("it is no JSON object")

        _check(event, ("seq", "time", "event"))
        _check(event, _REQUIRED.get(event["event"], ()))
        if event.get("output"):
            _check(event["output"], ("file", "bytes", "sha256"))

        for name in _LISTS.get(event["event"], ()):
            if not isinstance(event.get(name) or [], list):
                raise ValueError(f"{name} is {repr(event[name])[:80]}")

        if event["event"] == "metric" and not all(map(_is_point, event["values"])):
            raise ValueError(f"values is {repr(event['values'])[:80]}")
        if event.get("state", "failed") not in ("succeeded", "failed", "stopped"):
            raise ValueError(f"state is {event['state'][:80]!r}")
    # AttributeError: `output` is no object; RecursionError: 10,000 lists inside each other
    except (ValueError, AttributeError, RecursionError) as error:
        raise OutsideError(
            f"not an event of Trainyard's runner: {error}", where=where, hint=hint
        ) from error

    return event


def _check(fields: dict[str, Any], required: tuple[str, ...]) -> None:
    for name in required:
        if fields.get(name) is None:
            raise ValueError(f"{name} is missing")
    for name, value in fields.items():
        if name in _TYPES and not (
            type(value) in _TYPES[name] and _is_sound(value, below=_MOST.get(name, 1e11))
        ):
            raise ValueError(f"{name} is {repr(value)[:80]}")


def _is_point(value: object) -> bool:
    """Say whether a value is a point of a metric: [step, value, seconds since 1970]."""
    return (
        isinstance(value, list)
        and len(value) == 3
        and all(type(number) is float or _is_whole(number) for number in value)
    )


def _is_whole(number: object) -> bool:
    """Say whether a value is a whole number that fits into a float: JSON may have larger ones."""
    return type(number) is int and abs(number) <= sys.float_info.max


def _is_sound(value: object, *, below: float = 1e11) -> bool:
    if isinstance(value, str):
        # Bytes that are no UTF-8 travel as the surrogates U+DC80 to U+DCFF. Any other surrogate
        # raises a ValueError here.
        value.encode("utf-8", "surrogateescape")
    if isinstance(value, list):
        return all(isinstance(item, str) and _is_sound(item) for item in value)
    # NaN compares as False, so it is rejected, too.
    return not isinstance(value, (int, float)) or -1e9 < value < below
